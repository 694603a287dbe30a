package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Next to a `turnpike dev`, doctor examines that one, although it uses its own port and a variable names an
// unrelated Redis.
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
	c := doctorCmd{Config: app.Config{NATSURL: nats.DefaultURL, RedisURL: "redis://127.0.0.1:1", Prefix: "other"}}
	err := c.Run(&env{ctx: t.Context(), out: &out, client: api.New("http://127.0.0.1:1")})
	if !errors.Is(err, exitError(1)) || !strings.Contains(out.String(), "FAIL gateway") || !strings.Contains(out.String(), "ok   turnpike dev") || !strings.Contains(out.String(), "store: JetStream") {
		t.Errorf("doctor = %v:\n%s", err, out.String())
	}
}

// A gateway whose process is stopped accepts connections and never answers.
func TestDoctorOfSilentGateway(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	url := "http://" + silent.Addr().String()
	e := &env{ctx: t.Context(), server: url, client: api.New(url), readyPatience: 50 * time.Millisecond}
	f := e.gatewayFinding()
	if f.OK || !f.Broken || f.Name != "gateway: "+url || !strings.Contains(f.Detail, "no answer") || f.Remedy == "" {
		t.Errorf("the finding is %+v", f)
	}
}

// Every variable that a command reads is known to services, which warn about others.
func TestVariablesAreKnown(t *testing.T) {
	t.Parallel()
	k, err := kong.New(&cli{}, kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	if err := kong.Visit(k.Model, func(v kong.Visitable, next kong.Next) error {
		if f, ok := v.(*kong.Flag); ok {
			for _, name := range f.Envs {
				all = append(all, name+"=x")
			}
		}
		return next(nil)
	}); err != nil {
		t.Fatal(err)
	}
	unknown, err := app.UnknownVariables(all)
	if err != nil || len(unknown) > 0 || len(all) < 20 {
		t.Errorf("of %d variables these are unknown: %v, %v", len(all), unknown, err)
	}
}

// The finding about a gateway names what is wrong with it, and a remedy for that.
func TestDoctorNamesWhatTheGatewayLacks(t *testing.T) {
	t.Parallel()
	const restoring = "waiting_restore: the store is about 30s older than NATS: run `turnpike restore status`, then accept or abandon"
	for _, c := range []struct {
		ready          api.Readiness
		detail, remedy string
	}{
		{api.Readiness{Status: "degraded", Bus: "ok", Store: "ok", Restore: restoring}, restoring, "turnpike restore status"},
		{api.Readiness{Status: "degraded", Bus: "does not answer", Store: "ok", Restore: "ok"}, "bus does not answer", "repair the dependency"},
		{api.Readiness{Status: "draining", Bus: "ok", Store: "ok", Restore: "ok"}, "draining", "start another"},
		{
			api.Readiness{Status: "unavailable", Bus: "ok", Store: "ok", Restore: "ok", Findings: []state.Finding{{Name: "redis: clock", Fatal: true, Detail: "an hour late"}}},
			"redis: clock", "repair what",
		},
		{ // of a gateway that says nothing about the restore, and whose only failure is not fatal
			api.Readiness{Status: "degraded", Bus: "ok", Store: "ok", Findings: []state.Finding{{Name: "redis: clock"}, {Name: "redis", Fatal: true, OK: true}}},
			"degraded: bus ok, store ok", "the gateway's log has the error",
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := json.NewEncoder(w).Encode(c.ready); err != nil {
				t.Error(err)
			}
		}))
		e := newEnv(io.Discard, io.Discard, false, false)
		e.ctx, e.server, e.client = t.Context(), server.URL, api.New(server.URL)
		f := e.gatewayFinding()
		server.Close()
		if f.OK || !strings.Contains(f.Detail, c.detail) || !strings.Contains(f.Remedy, c.remedy) {
			t.Errorf("%+v: %+v", c.ready, f)
		}
	}
}
