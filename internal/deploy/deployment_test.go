package deploy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed/plain"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// TestWorkerDies kills this program, started with these variables.
const (
	victimNATS  = "TURNPIKE_TEST_VICTIM_NATS"
	victimRedis = "TURNPIKE_TEST_VICTIM_REDIS"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(victimNATS); url != "" {
		if err := victim(deploy.Config{NATSURL: url, RedisURL: os.Getenv(victimRedis), Prefix: "dies"}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim takes turns, prints when its tool is called, and never lets the call end.
func victim(cfg deploy.Config) error {
	ctx := context.Background()
	d, err := deploy.Open(ctx, cfg)
	if err != nil {
		return err
	}
	w, err := d.NewWorker(durable(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		_, _ = io.WriteString(os.Stdout, "called\n")
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	}))
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func durable(book tool.Func) worker.Config {
	return worker.Config{
		Providers: map[string]model.Provider{"scripted": scripted.New()}, Kinds: toolspec.Kinds(map[string]tool.Tool{"book": book}),
		ShutdownGrace: time.Second, Without: plain.Without(),
	}
}

// serve serves HTTP until the test ends.
func serve(t *testing.T, d *deploy.Deployment) *api.Client {
	t.Helper()
	g, err := d.NewGateway(gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	goes(t, func(ctx context.Context) error { return g.Serve(ctx, listener) })
	return api.New("http://" + listener.Addr().String())
}

// goes runs a part until the test ends.
func goes(t *testing.T, run func(ctx context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A worker process is killed in the middle of a tool call. Another one completes the run from the journal, with
// Redis and with JetStream as the store.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]string{"redis": testbed.Redis(t), "jetstream": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), RedisURL: redis, Prefix: "dies"}
			d, err := deploy.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			c := serve(t, d)
			killed := exec.CommandContext(t.Context(), os.Args[0])
			killed.Env = append(os.Environ(), victimNATS+"="+cfg.NATSURL, victimRedis+"="+cfg.RedisURL)
			killed.Stderr = os.Stderr
			said, err := killed.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := killed.Start(); err != nil {
				t.Fatal(err)
			}
			run := submit(t, c)
			if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
				t.Fatalf("the tool was not called: %v", err)
			}
			if err := killed.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = killed.Wait() // it was killed
			w, err := d.NewWorker(durable(func(context.Context, tool.Call) (tool.Result, error) {
				return tool.Result{Content: "seat 12A"}, nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			goes(t, w.Run)
			done, err := c.Wait(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			if done.Status != string(state.Completed) || done.Usage.ModelCalls != 2 {
				t.Errorf("the run ended %s after %d model calls, want completed after 2", done.Status, done.Usage.ModelCalls)
			}
		})
	}
}

func submit(t *testing.T, c *api.Client) (run string) {
	t.Helper()
	const booker = `
name: booker
instructions: You book trains.
tools: [{name: book, description: Books a seat., idempotent: true}]
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: book, arguments: {}}]}
    - {text: "You have seat 12A."}
`
	if _, err := c.PutAgent(t.Context(), "booker", []byte(booker)); err != nil {
		t.Fatal(err)
	}
	started, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "booker", Input: json.RawMessage(`"Book."`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	return started.ID
}

// The parts share what belongs to the deployment: the registry has the metrics of both, and a lease duration
// for a single worker is refused.
func TestParts(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	d, err := deploy.Open(t.Context(), deploy.Config{NATS: testbed.NATS(t), Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if cfg := d.Config(); cfg.Prefix != "turnpike" || cfg.Lease != 25*time.Second || cfg.Replicas != 1 {
		t.Errorf("defaults: %+v", cfg)
	}
	if _, err := d.NewWorker(worker.Config{LeaseDuration: time.Second}); err == nil || !strings.Contains(err.Error(), "LeaseDuration of the worker is 1s, that of its deployment is 25s") {
		t.Errorf("a separate lease duration: %v", err)
	}
	if _, err := d.NewWorker(worker.Config{}); err != nil {
		t.Errorf("a worker without an id: %v", err)
	}
	if _, err := d.NewGateway(gateway.Config{}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	if all := strings.Join(names, " "); !strings.Contains(all, "turnpike_event_readers") || !strings.Contains(all, "turnpike_redeliveries_total") {
		t.Errorf("the registry has %s", all)
	}
	if _, err := d.NewWorker(worker.Config{}); err == nil {
		t.Error("two workers share one registry")
	}
}

// Invalid settings and unresponsive servers cause errors with the remedy, and Close works after them and twice.
func TestOpenRefused(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	ca := testbed.NewAuthority(t)
	withTLS := testbed.NATSWith(t, func(o *server.Options) { o.Host, o.TLS, o.TLSConfig = "0.0.0.0", true, ca.ServerConfig() }).Addr().(*net.TCPAddr).Port
	withUsers := testbed.NATSWith(t, func(o *server.Options) { o.Username, o.Password = "site", "x" }).Addr()
	trusting := natslogin.Login{TLS: credential.TLS{CA: credential.Value{File: ca.File}}}
	redis := testbed.RedisProcess(t, "--requirepass", "x").URL
	for name, c := range map[string]struct {
		cfg  deploy.Config
		want string
	}{
		"no authority":     {deploy.Config{NATSURL: fmt.Sprintf("tls://127.0.0.1:%d", withTLS)}, "TURNPIKE_NATS_CA_FILE"},
		"another name":     {deploy.Config{NATSURL: fmt.Sprintf("tls://127.0.0.2:%d", withTLS), NATSLogin: trusting}, "a host name that the server's certificate has"},
		"no certificate":   {deploy.Config{NATSURL: fmt.Sprintf("tls://127.0.0.1:%d", withTLS), NATSLogin: trusting}, "TURNPIKE_NATS_CERT_FILE"},
		"no user of NATS":  {deploy.Config{NATSURL: "nats://" + withUsers.String()}, "TURNPIKE_NATS_USER"},
		"no user of Redis": {deploy.Config{NATS: nc, RedisURL: redis}, "TURNPIKE_REDIS_USER"},
		"no NATS":          {deploy.Config{NATSURL: "nats://127.0.0.1:1"}, "start nats-server with -js at nats://127.0.0.1:1"},
		"no Redis":         {deploy.Config{NATS: nc, RedisURL: "redis://127.0.0.1:1"}, "redis"},
		"lease":            {deploy.Config{NATS: nc, Lease: -1}, "lease is -1ns: set more than 0"},
		"replicas":         {deploy.Config{NATS: nc, Replicas: -1}, "replicas is -1: set 1 to 5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := deploy.Open(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open = %v, want an error with %q", err, c.want)
			}
		})
	}
	d, err := deploy.Open(t.Context(), deploy.Config{NATS: nc})
	if err != nil {
		t.Fatal(err)
	}
	order := ""
	d.OnClose(func() { order += "first " })
	d.OnClose(func() { order += "last " })
	d.Close()
	d.Close()
	if order != "last first " || nc.IsClosed() {
		t.Errorf("Close returned %q, and the caller's connection is closed: %v", order, nc.IsClosed())
	}
}

// A process with Redis reports another deployment with checkpoints in JetStream under the same prefix, and only
// that.
func TestTwoStoresUnderOnePrefix(t *testing.T) {
	t.Parallel()
	url, redis := testbed.NATSServer(t).URL(), testbed.Redis(t)
	open := func(prefix, redis string) string {
		var log strings.Builder
		d, err := deploy.Open(t.Context(), deploy.Config{NATSURL: url, RedisURL: redis, Prefix: prefix, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		return log.String()
	}
	const warning = "JetStream has a stream for the runs"
	for _, c := range []struct {
		prefix, redis string
		warned        bool
	}{{"two", redis, false}, {"two", "", false}, {"two", redis, true}, {"three", redis, false}} {
		if log := open(c.prefix, c.redis); strings.Contains(log, warning) != c.warned {
			t.Errorf("%+v: log:\n%s", c, log)
		}
	}
}
