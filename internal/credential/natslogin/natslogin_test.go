package natslogin_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
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

// Each connection reads the files again, so that a rotated credential needs no restart.
func TestFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	file := func(name string) credential.Value {
		return credential.Value{Name: name, File: filepath.Join(t.TempDir(), "value")}
	}
	write := func(v credential.Value, text string) {
		t.Helper()
		if err := os.WriteFile(v.File, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	options := func(l natslogin.Login) (o nats.Options) {
		t.Helper()
		all, err := l.Options()
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range all {
			if err := set(&o); err != nil {
				t.Fatal(err)
			}
		}
		return o
	}

	user, password := file("USER"), file("PASSWORD")
	write(user, "gateway")
	write(password, "old")
	o := options(natslogin.Login{User: user, Password: password})
	write(user, "worker")
	write(password, "new")
	if u, p := o.UserInfo(); u != "worker" || p != "new" {
		t.Errorf("user %s, password %s", u, p)
	}

	creds := file("CREDS")
	write(creds, credsOf(t, "first"))
	o = options(natslogin.Login{Creds: creds})
	second := credsOf(t, "second")
	write(creds, second)
	pair, err := nkeys.ParseDecoratedUserNKey([]byte(second))
	if err != nil {
		t.Fatal(err)
	}
	token, err := o.UserJWT()
	signature, signErr := o.SignatureCB([]byte("nonce"))
	if err != nil || signErr != nil || token != "second" || pair.Verify([]byte("nonce"), signature) != nil {
		t.Errorf("JWT %s, %v; signature %x, %v", token, err, signature, signErr)
	}

	ca := testbed.NewAuthority(t)
	cert, key := ca.Issue("gateway")
	o = options(natslogin.Login{TLS: credential.TLS{Cert: credential.Value{Name: "CERT", File: cert}, Key: credential.Value{Name: "KEY", File: key}}})
	ca.Issue("gateway") // in the same files
	want, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := o.TLSConfig.GetClientCertificate(nil); err != nil || !bytes.Equal(shown.Certificate[0], want.Certificate[0]) {
		t.Errorf("the certificate is not the new one: %v", err)
	}
}

// credsOf returns what nsc writes for a new user.
func credsOf(t *testing.T, token string) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("-----BEGIN NATS USER JWT-----\n%s\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n", token, seed)
}
