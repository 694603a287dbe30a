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

// A URL of HTTP is refused as one that is not of NATS.
func TestCheckURLs(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"": true, "127.0.0.1:4222": true, "nats://a,tls://b, ws://c": true, "nats://http:x@a": true,
		"http://a:4222": false, "nats://a, HTTPS://b": false,
	} {
		if err := natslogin.CheckURLs(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}
