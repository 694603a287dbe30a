package devaddr_test

import (
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/devaddr"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// A program that names no server uses the running `turnpike dev`, as long as that runs.
func TestServer(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TURNPIKE_DATA_DIR", "")
	want := func(what, named, url string) {
		t.Helper()
		if got := devaddr.Server(named); got != url {
			t.Errorf("%s: %q, want %q", what, got, url)
		}
	}
	want("nothing is there", "", nats.DefaultURL)
	dev := testbed.NATSServer(t).URL()
	if err := os.Mkdir(".turnpike", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ written, found string }{{"nats://127.0.0.1:1", nats.DefaultURL}, {dev, dev}} {
		if err := os.WriteFile(".turnpike/nats.url", []byte(c.written+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		want("dev at "+c.written, "", c.found)
	}
	// The address of the local dev needs no password, wherever the address comes from.
	if err := os.WriteFile(".turnpike/nats.url", []byte("nats://turnpike:secret@127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for named, found := range map[string]string{
		"nats://127.0.0.1:1": "nats://turnpike:secret@127.0.0.1:1", "nats://me:x@127.0.0.1:1": "nats://me:x@127.0.0.1:1",
		"nats://127.0.0.1:2": "nats://127.0.0.1:2", "nats://127.0.0.1:1,nats://evil:1": "nats://127.0.0.1:1,nats://evil:1",
	} {
		want(named, named, found)
	}
	want("another server", "nats://other", "nats://other")
}
