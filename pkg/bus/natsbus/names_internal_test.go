package natsbus

import "testing"

// The streams of an intake are those of its deployment: the names of others may begin with the same words.
func TestIntakeKind(t *testing.T) {
	t.Parallel()
	n := names{prefix: "turnpike"}
	for name, want := range map[string]string{
		"TURNPIKE_SUBMIT":         kindSubmit,
		"TURNPIKE_SUBMIT_acme":    kindSubmit,
		"TURNPIKE_CONTROL":        kindControl,
		"TURNPIKE_CONTROL_acme-1": kindControl,
		"TURNPIKE_SUBMITTED":      "",
		"TURNPIKE_SUBMITacme":     "",
		"TURNPIKE_SUBMIT_":        "",
		"TURNPIKE_SUBMIT_COPY":    "",
		"TURNPIKE_SUBMIT_a_b":     "",
		"TURNPIKE_EVENTS_acme":    "",
		"TURNPIKE_X_SUBMIT_acme":  "",
		"OTHER_SUBMIT_acme":       "",
	} {
		if kind, ok := n.intakeKind(name); kind != want || ok != (want != "") {
			t.Errorf("%s is of the kind %q, %v; want %q", name, kind, ok, want)
		}
	}
}
