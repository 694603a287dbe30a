package natslogin_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
)

// A prefix of reply subjects that NATS would refuse is refused by its name.
func TestInboxIsASubject(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"a b", "a.>", "*", ".a", "a.", "a..b", "a\tb"} {
		if _, err := (natslogin.Login{Inbox: bad}).Options(); err == nil || !strings.Contains(err.Error(), "TURNPIKE_NATS_INBOX") {
			t.Errorf("inbox %q: %v", bad, err)
		}
	}
	for _, good := range []string{"_INBOX", "_INBOX_acme", "inbox.of.acme"} {
		if _, err := (natslogin.Login{Inbox: good}).Options(); err != nil {
			t.Errorf("inbox %q: %v", good, err)
		}
	}
}
