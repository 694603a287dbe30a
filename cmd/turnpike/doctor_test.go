package main

import (
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/client"
)

// Beside a `turnpike dev` doctor looks at that one, although it listens on a port of its
// own and a variable names a Redis that dev has nothing to do with.
func TestDoctorSeesDev(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TURNPIKE_NATS_URL", "")
	t.Setenv("TURNPIKE_DATA_DIR", "")
	if err := os.Mkdir(".turnpike", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(".turnpike/nats.url", []byte(testbed.NATSServer(t).URL()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := doctorCmd{app.Config{NATSURL: nats.DefaultURL, RedisURL: "redis://127.0.0.1:1", Prefix: "other"}}
	err := c.Run(&env{ctx: t.Context(), out: &out, client: client.New("http://127.0.0.1:1")})
	if err != nil || !strings.Contains(out.String(), "ok   turnpike dev") || !strings.Contains(out.String(), "store: JetStream") {
		t.Errorf("doctor = %v:\n%s", err, out.String())
	}
}
