package streamin

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A refusal by NATS reaches callers only as texts without names of the account.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*jetstream.APIError{
		"filtered consumer not unique on workqueue stream: set subjects in the trigger that no other consumer of the stream reads, or delete the other consumer": {Code: 400, ErrorCode: 10100, Description: "filtered consumer not unique on workqueue stream"},
		"JetStream reported the error code 10021: ask the operator of NATS what it means, and correct the stream or the trigger":                                 {Code: 400, ErrorCode: 10021, Description: "stream external api prefix x must not overlap with other.secret"},
	} {
		if got := refusal(e); got != want {
			t.Errorf("refusal of %d: %s, want %s", e.ErrorCode, got, want)
		}
	}
}
