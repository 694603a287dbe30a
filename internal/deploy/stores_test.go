package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// logText is a log that is safe for concurrent use.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// line returns the first line with a text, or "".
func (l *logText) line(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// A worker on another store than the rest of the deployment has none of its runs. It records none of them as lost and
// keeps their turn messages, as long as a process of the other store is alive.
func TestWorkerOnAnotherStoreLosesNoRun(t *testing.T) {
	t.Parallel()
	redis := testbed.RedisProcess(t).URL
	for prefix, wrong := range map[string]string{"jetstream": "", "database": strings.TrimSuffix(redis, "/0") + "/1"} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), RedisURL: redis, Prefix: prefix}
			right := open(t, cfg)
			g, err := right.NewGateway(gateway.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error)
			go func() { left <- g.Run(ctx) }() // sends heartbeats
			var log logText
			cfg.RedisURL, cfg.Logger = wrong, slog.New(slog.NewJSONHandler(&log, nil))
			d := open(t, cfg)
			settings := durable(nil)
			settings.SweepInterval, settings.RedeliveryDelay = 20*time.Millisecond, 50*time.Millisecond
			w, err := d.NewWorker(settings)
			if err != nil {
				t.Fatal(err)
			}
			goes(t, w.Run)

			const id = state.RunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T")
			if err := right.Bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 7, Priority: state.Normal, Tenant: state.DefaultTenant}, "a"); err != nil {
				t.Fatal(err)
			}
			eventually := func(what string, done func() bool) {
				testbed.Eventually(t, what, func() error {
					if !done() {
						return fmt.Errorf("not yet; the log is:\n%s", log.line(""))
					}
					return nil
				})
			}
			const warning = "a turn message names a run that the store of this process does not have"
			eventually("the worker warns", func() bool { return log.line(warning) != "" })
			kind := "JetStream"
			if wrong != "" {
				kind = "Redis (id "
			}
			for _, want := range []string{`"store":"` + kind, `"other_store":"Redis (id `, `"process":"gateway-`, "TURNPIKE_REDIS_URL"} {
				if line := log.line(warning); !strings.Contains(line, want) {
					t.Errorf("the warning is %swant %s in it", line, want)
				}
			}
			eventually("the worker reports the stores", func() bool { return log.line("processes of this deployment keep their runs in different stores") != "" })
			if _, err := d.Store.Load(t.Context(), id); !errors.Is(err, state.ErrNotFound) {
				t.Errorf("load: %v", err)
			}
			lost, err := state.State{ID: id}.Lost(state.At(time.Now()), "a test")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Store.Create(t.Context(), state.NewRun{State: lost}); err == nil || !strings.Contains(err.Error(), "TURNPIKE_REDIS_URL") {
				t.Errorf("record a loss: %v", err)
			}
			leave()
			if err := <-left; err != nil {
				t.Error(err)
			}
			eventually("with no other process, the run is lost", func() bool {
				st, err := d.Store.Load(t.Context(), id)
				return err == nil && st.Transition.Reason == state.EndLost
			})
		})
	}
}

// A process uses the id of its store that others have written after the store lost it.
func TestStoreOfNewID(t *testing.T) {
	t.Parallel()
	cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), RedisURL: testbed.RedisProcess(t).URL, Prefix: "wiped"}
	ids := make(chan string, 100)
	old := open(t, cfg)
	stop, err := old.Bus.Heartbeats(t.Context(), func(h bus.Heartbeat) {
		if h.Worker == "old" {
			ids <- h.StoreID
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	old.Bus.SendHeartbeat(bus.Heartbeat{Worker: "old"})
	before := <-ids
	if before == "" {
		t.Fatal("the store has no id")
	}
	rdb := redisAt(t, cfg.RedisURL)
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	renewed := open(t, cfg)
	testbed.Eventually(t, "the old process reads the new id", func() error {
		renewed.Bus.SendHeartbeat(bus.Heartbeat{Worker: "new"})
		old.Bus.SendHeartbeat(bus.Heartbeat{Worker: "old"})
		if id := <-ids; id == before || id == "" {
			return fmt.Errorf("the id is %q", id)
		}
		return nil
	})
}

func open(t *testing.T, cfg deploy.Config) *deploy.Deployment {
	t.Helper()
	d, err := deploy.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func redisAt(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
