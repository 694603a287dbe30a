package natslogin_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/credential"
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

// A seed alone is no remedy for TURNPIKE_NATS_CREDS, which needs a user JWT too.
func TestNoSeed(t *testing.T) {
	t.Parallel()
	jwt := credential.Value{Name: "TURNPIKE_NATS_CREDS", Text: "-----BEGIN NATS USER JWT-----\neyJ0eXAiOiJKV1QifQ.e30.c2ln\n------END NATS USER JWT------\n"}
	for want, login := range map[string]natslogin.Login{
		"nsc generate creds":   {Creds: jwt},
		"which begins with SU": {NKey: credential.Value{Name: "TURNPIKE_NATS_NKEY", Text: "x"}},
	} {
		if _, err := login.Options(); err == nil || !strings.Contains(err.Error(), "has no seed of a NATS user: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %s", err, want)
		}
	}
}
