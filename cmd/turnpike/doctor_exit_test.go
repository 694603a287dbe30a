package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/app/equipped"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/standard"
)

// processes is a deployment in the form in which doctor finds it: servers, a gateway and a worker.
type processes struct {
	t     *testing.T
	nats  *server.Server
	redis *redis.Client
	dir   string // of Redis

	config                  app.Config
	url                     string // of the gateway
	stopGateway, stopWorker func()
}

func startProcesses(t *testing.T) *processes {
	t.Helper()
	p := &processes{t: t, nats: testbed.NATSWith(t, func(o *server.Options) { o.JetStreamMaxStore = 8 << 20 }), dir: t.TempDir()}
	r := testbed.RedisProcess(t, "--appendonly", "no", "--save", "3600 1000000", "--maxmemory-policy", "noeviction", "--enable-protected-configs", "yes")
	options, err := redis.ParseURL(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.redis = redis.NewClient(options)
	t.Cleanup(func() { _ = p.redis.Close() })
	p.config = app.Config{NATSURL: p.nats.ClientURL(), RedisURL: r.URL, Prefix: "doctor", Confirm: "off", Replicas: 1, Log: app.Log{LogLevel: "error"}}
	p.config.Streams.SubmitMiB, p.config.Streams.ControlMiB, p.config.Streams.DeadMiB, p.config.Streams.EventsMiB = -1, -1, -1, -1
	settings := p.config.Deployment()
	settings.Logger = slog.New(slog.DiscardHandler)
	d, err := deploy.Open(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	g, err := d.NewGateway(gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := equipped.Worker(d, worker.Config{ID: "w1", ShutdownGrace: time.Millisecond}, standard.Config{}, "")
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(g.Handler())
	p.url = listener.URL
	p.stopGateway, p.stopWorker = listener.Close, run(t, w.Run)
	t.Cleanup(listener.Close)
	return p
}

// run runs a service until stop is called or the test ends.
func run(t *testing.T, service func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = service(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// doctor returns the exit code of `turnpike doctor`, and its output.
func (p *processes) doctor() (int, string) {
	p.t.Helper()
	var out strings.Builder
	c := doctorCmd{Config: p.config}
	err := c.Run(&env{ctx: p.t.Context(), out: &out, server: p.url, client: api.New(p.url)})
	code := exitError(0)
	if err != nil && !errors.As(err, &code) {
		p.t.Fatal(err)
	}
	return int(code), out.String()
}

func (p *processes) setRedis(name, value string) {
	p.t.Helper()
	if err := p.redis.ConfigSet(p.t.Context(), name, value).Err(); err != nil {
		p.t.Fatal(err)
	}
}

// failSnapshot makes Redis fail to write a snapshot. The superuser may write to any directory, so a directory
// takes the snapshot's name.
func (p *processes) failSnapshot() {
	p.t.Helper()
	p.setRedis("dir", p.dir)
	if err := os.Mkdir(filepath.Join(p.dir, "dump"), 0o700); err != nil {
		p.t.Fatal(err)
	}
	p.setRedis("dbfilename", "dump")
	if err := p.redis.BgSave(p.t.Context()).Err(); err != nil {
		p.t.Fatal(err)
	}
	testbed.Eventually(p.t, "the snapshot has failed", func() error {
		if s := p.redis.InfoMap(p.t.Context(), "persistence").Item("Persistence", "rdb_last_bgsave_status"); s != "err" {
			return errors.New("its status is " + s)
		}
		return nil
	})
}

// fillNATS makes NATS reject all messages for lack of space.
func (p *processes) fillNATS() {
	p.t.Helper()
	nc, err := natsbus.Connect(p.nats.ClientURL(), p.t.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := js.CreateStream(p.t.Context(), jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}, Storage: jetstream.FileStorage}); err != nil {
		p.t.Fatal(err)
	}
	for size := 1 << 20 / 2; size > 8; size /= 2 {
		for err = nil; err == nil; {
			_, err = js.Publish(p.t.Context(), "filler", make([]byte, size))
		}
	}
}

// sealTurns makes one of several turn streams reject messages.
func (p *processes) sealTurns() {
	p.t.Helper()
	nc, err := natsbus.Connect(p.nats.ClientURL(), p.t.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	defer nc.Close()
	b, err := natsbus.Open(p.t.Context(), nc, natsbus.Config{Prefix: p.config.Prefix, TurnStreams: 3, Limits: natsbus.Limits{Submit: -1, Control: -1, Dead: -1, Events: -1}})
	if err != nil {
		p.t.Fatal(err)
	}
	defer b.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := js.Stream(p.t.Context(), "DOCTOR_TURNS_3")
	if err != nil {
		p.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes = 1
	if _, err := js.UpdateStream(p.t.Context(), cfg); err != nil {
		p.t.Fatal(err)
	}
}

// Doctor exits with 1 and the reason if runs cannot make progress, whether or not a gateway answers.
func TestDoctorExitCode(t *testing.T) {
	t.Setenv("TURNPIKE_NATS_URL", "named") // disables the lookup of a `turnpike dev`
	for _, c := range []struct {
		name  string
		harm  func(p *processes)
		fails string // the line that begins with FAIL
	}{
		{"all is well", func(*processes) {}, ""},
		{"no worker", func(p *processes) { p.stopWorker() }, "workers "},
		{"no gateway", func(p *processes) { p.stopGateway() }, "gateway: "},
		{"too few replicas", func(p *processes) { p.setRedis("min-replicas-to-write", "1") }, "redis: test write "},
		{"a snapshot failed", (*processes).failSnapshot, "redis: test write "},
		{"memory is full", func(p *processes) { p.setRedis("maxmemory", "100kb") }, "redis: writes "},
		{"a replica", func(p *processes) {
			if err := p.redis.ReplicaOf(p.t.Context(), "127.0.0.1", "1").Err(); err != nil {
				p.t.Fatal(err)
			}
		}, "redis: writes "},
		{"NATS is full", (*processes).fillNATS, "nats: writes "},
		{"a stream of turns is full", (*processes).sealTurns, "nats: writes "},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, gateway := range []string{"", " without a gateway"} {
				if c.fails == "" && gateway != "" || c.fails == "gateway: " && gateway == "" {
					continue
				}
				p := startProcesses(t)
				p.doctor() // to make sure that the worker has started
				c.harm(p)
				if gateway != "" {
					p.stopGateway()
				}
				// On a busy machine, a server may answer doctor too late.
				testbed.Eventually(t, "doctor"+gateway, func() error {
					code, out := p.doctor()
					if want := min(1, len(c.fails)); code != want || !strings.Contains(out, "FAIL "+c.fails) && want != 0 {
						return fmt.Errorf("exit code %d, want %d and a failure of %q:\n%s", code, want, c.fails, out)
					}
					if want := c.fails == "workers "; strings.Contains(out, "no heartbeat received from any worker") != want {
						return fmt.Errorf("no worker was found:\n%s", out)
					}
					return nil
				})
			}
		})
	}
}
