package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/doctor"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Doctor names the checks that it could not make, and the cause.
func TestDoctorNamesSkippedChecks(t *testing.T) {
	t.Parallel()
	nats, redis := testbed.NATSServer(t).URL(), testbed.Redis(t)
	for name, c := range map[string]struct {
		cfg   deploy.Config
		words []string
	}{
		"no NATS": {
			deploy.Config{NATSURL: "nats://127.0.0.1:1", RedisURL: redis, Prefix: "skips"},
			[]string{"nats: writes", "workers", "store: restore", "tools", "NATS does not answer"},
		},
		"no store": {
			deploy.Config{NATSURL: nats, RedisURL: "redis://127.0.0.1:1", Prefix: "skips"},
			[]string{"store: restore", "store: lost runs", "Redis does not answer"},
		},
		"neither": {deploy.Config{NATSURL: "nats://127.0.0.1:1", Prefix: "skips"}, []string{"nats: writes", "store: writes", "agents"}},
		"no login": {
			deploy.Config{NATSURL: nats, NATSLogin: natslogin.Login{NKey: credential.Value{Name: "TURNPIKE_NATS_NKEY", Text: "none"}}, Prefix: "skips"},
			[]string{"nats: writes", "redis", "store", "agents", "the login at NATS is not valid"},
		},
		"no streams": {deploy.Config{NATSURL: nats, Prefix: "skips"}, []string{"store: writes", "agents", "no streams"}},
	} {
		f := found(t, c.cfg, "skipped")
		for _, want := range append(c.words, " checks: ") {
			if f.OK || f.Fatal || f.Broken || !strings.Contains(f.Detail, want) {
				t.Errorf("%s: %+v, want %q in it", name, f, want)
			}
		}
	}
	cfg := deploy.Config{NATSURL: nats, RedisURL: redis, Prefix: "skips-none"}
	start(t, cfg)
	for _, f := range doctor.Findings(t.Context(), cfg, "") {
		if f.Name == "skipped" {
			t.Errorf("nothing is skipped, and the finding is %+v", f)
		}
	}
}

// Doctor counts the gateways, because it asks only one of them.
func TestDoctorCountsGateways(t *testing.T) {
	t.Parallel()
	cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), Prefix: "count"}
	d, err := deploy.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if f := found(t, cfg, "gateways"); f.OK || !strings.Contains(f.Remedy, "start a gateway") {
		t.Errorf("without a gateway: %+v", f)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			for _, name := range []string{"gateway-a", "gateway-b"} {
				d.Bus.SendHeartbeat(bus.Heartbeat{Worker: name, Gateway: true, Format: state.Format})
			}
			select {
			case <-quit:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	f := found(t, cfg, "gateways")
	close(quit)
	<-done
	if !f.OK || !strings.Contains(f.Detail, "2 running") || !strings.Contains(f.Detail, "--server") {
		t.Errorf("with two gateways: %+v", f)
	}
}
