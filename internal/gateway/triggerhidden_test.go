package gateway_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A stream may have subjects of other tenants: neither a trigger's status nor a refusal names them.
func TestTriggersHideOtherSubjects(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("SHARED", "shared.acme.>")
	acme := s.tenant("acme", api.TenantStream{Name: "SHARED", Subjects: []string{"shared.acme.>", "lists.acme.>"}})
	s.put(acme, "all", `{"stream": "SHARED", "run": {"agent": "a"}}`)
	if _, err := s.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "SHARED", Subjects: []string{"shared.acme.>", "shared.secret.>"}}); err != nil {
		t.Fatal(err)
	}
	s.publish("shared.secret.merger", `{}`)
	s.untilError(acme, "all", "subjects that triggers of tenant acme may not read")
	told := []string{}
	shown, err := acme.Trigger(t.Context(), "all")
	if err != nil {
		t.Fatal(err)
	}
	told = append(told, shown.Status.LastError)
	for settings, want := range map[string]string{
		`{"stream": "SHARED", "run": {"agent": "a"}}`:                                  "name allowed subjects",
		`{"stream": "SHARED", "subjects": ["lists.acme.x"], "run": {"agent": "a"}}`:    "does not store the subject lists.acme.x, it stores shared.acme.>",
		`{"stream": "SHARED", "subjects": ["shared.*.merger"], "run": {"agent": "a"}}`: "subject shared.*.merger",
	} {
		_, err := s.tryPut(acme, "other", settings)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", settings, err, want)
			continue
		}
		told = append(told, err.Error())
	}
	for _, text := range told {
		if strings.Contains(text, "secret") {
			t.Errorf("a caller of acme reads %q", text)
		}
	}
}
