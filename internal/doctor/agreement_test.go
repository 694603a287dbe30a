package doctor_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/doctor"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Doctor reports processes whose settings or keys differ although they must be the same.
func TestDoctorComparesProcesses(t *testing.T) {
	t.Parallel()
	cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), Prefix: "compare", BusKeys: busKey("a")}
	beats(t, cfg, "first")
	about := func(cfg deploy.Config, name string) (detail string) {
		for _, f := range doctor.Findings(t.Context(), cfg, "") {
			if f.Name == name && !f.OK {
				detail += f.Detail
			}
		}
		return detail
	}
	if settings, signed := about(cfg, "settings of processes"), about(cfg, "bus keys"); settings+signed != "" {
		t.Errorf("one process: %s; %s", settings, signed)
	}
	other := cfg
	other.Lease = 10 * time.Second
	beats(t, other, "second")
	if got, want := about(cfg, "settings of processes"), "TURNPIKE_LEASE is 10s in 1, such as second; 25s in 1, such as first"; got != want {
		t.Errorf("two leases: %q, want %q", got, want)
	}
	other.BusKeys = busKey("b")
	beats(t, other, "third")
	if got := about(cfg, "bus keys"); !strings.Contains(got, "1 process") || !strings.Contains(got, "third") {
		t.Errorf("two keys: %q", got)
	}
	none := cfg
	none.BusKeys = credential.Value{}
	if got := about(none, "bus keys"); !strings.Contains(got, "3 processes") {
		t.Errorf("doctor without a key: %q", got)
	}
}

func busKey(letter string) credential.Value {
	return credential.Value{Name: "TURNPIKE_BUS_KEYS", Text: strings.Repeat(letter, 32)}
}

// beats sends heartbeats of a worker until stop is called or the test ends.
func beats(t *testing.T, cfg deploy.Config, worker string) (stop func()) {
	t.Helper()
	d, err := deploy.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			d.Bus.SendHeartbeat(bus.Heartbeat{Worker: worker, Format: state.Format})
			select {
			case <-quit:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	stop = sync.OnceFunc(func() { close(quit); <-done; d.Close() })
	t.Cleanup(stop)
	return stop
}
