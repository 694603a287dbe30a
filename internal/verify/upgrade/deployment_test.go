package upgrade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

// stores are those that a deployment may keep its runs in.
var stores = []string{"redis", "jetstream"}

// deployment is this build in one process, on servers of its own.
type deployment struct {
	*turnpike.Deployment

	client *client.Client
	js     jetstream.JetStream
	redis  *redis.Client // nil with runs in JetStream

	mu      sync.Mutex
	stalled int           // tools that stall
	gate    chan struct{} // closed when they need not any more
	started map[string]int
}

// newDeployment starts a deployment on what f has, if it is not nil.
func newDeployment(t *testing.T, store string, f *frozen) *deployment {
	t.Helper()
	s := &deployment{gate: make(chan struct{}), started: map[string]int{}}
	nc := testbed.NATS(t)
	cfg := turnpike.Config{NATS: nc}
	var err error
	if s.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if store == "redis" {
		cfg.RedisURL = testbed.RedisProcess(t, "--save", "", "--appendonly", "yes").URL
		opts, err := redis.ParseURL(cfg.RedisURL)
		if err != nil {
			t.Fatal(err)
		}
		s.redis = redis.NewClient(opts)
		t.Cleanup(func() { _ = s.redis.Close() })
	}
	if f != nil {
		// The streams must be there before what was on them.
		empty, err := turnpike.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		empty.Close()
		if err := writeStreams(t.Context(), s.js, f.Streams); err != nil {
			t.Fatal(err)
		}
		if s.redis != nil {
			if err := writeKeys(t.Context(), s.redis, f.Keys); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg.Logger = zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	if s.Deployment, err = turnpike.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	g, err := gateway.New(s.Store, s.Bus, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.goes(t, g.Run)
	web := httptest.NewServer(g.Handler())
	t.Cleanup(web.Close)
	s.client = client.New(web.URL)
	return s
}

func (s *deployment) goes(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// work starts a worker.
func (s *deployment) work(t *testing.T, slots int) {
	t.Helper()
	ok := tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.started[string(c.Run)+" "+c.Name]++
		return tool.Result{Content: "found a lot of things"}, nil
	})
	stall := tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
		r, err := ok(ctx, c)
		s.mu.Lock()
		s.stalled++
		s.mu.Unlock()
		select {
		case <-s.gate:
			return r, err
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	})
	w, err := worker.New(s.Store, s.Bus, worker.Config{
		ID: "w1", Slots: slots, Providers: map[string]model.Provider{"scripted": scripted.New()}, Registry: nil, Logger: s.Config().Logger,
		SweepEvery: 50 * time.Millisecond, RedeliveryDelay: 2 * time.Second, ShutdownGrace: time.Second,
		Kinds: toolspec.Kinds(map[string]tool.Tool{
			"look": ok, "refund": ok, "stall": stall, "stall_again": stall, "bomb": stall,
			"render": tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Pending: true}, nil }),
			"elicit": tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
				if c.Resume == nil {
					return tool.Result{Ask: &tool.Ask{Question: "really?", State: json.RawMessage(`{"at": 1}`)}}, nil
				}
				return tool.Result{Content: c.Resume.Answer}, nil
			}),
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.goes(t, w.Run)
}

func (s *deployment) stalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled
}

func (s *deployment) get(t *testing.T, id string) api.Run {
	t.Helper()
	run, err := s.client.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// stands says where a run stands: its reason, or else its status.
func stands(run api.Run) string {
	if run.Reason != nil {
		return *run.Reason
	}
	return run.Status
}

func (s *deployment) signal(t *testing.T, id string, r api.SignalRequest) {
	t.Helper()
	if _, err := s.client.Signal(t.Context(), id, r); err != nil {
		t.Fatalf("signal %s: %v", id, err)
	}
}

func text(s string) json.RawMessage { return json.RawMessage(fmt.Sprintf("%q", s)) }

// answer gives a run what it waits for.
func (s *deployment) answer(t *testing.T, run api.Run) {
	t.Helper()
	switch stands(run) {
	case "waiting_approval":
		for _, c := range run.Waiting.Calls {
			s.signal(t, run.ID, api.SignalRequest{Approvals: []api.Approval{{CallID: c.ID, Decision: "approve"}}})
		}
	case "waiting_client_tool", "waiting_tool":
		for _, c := range run.Waiting.Calls {
			s.signal(t, run.ID, api.SignalRequest{ToolResults: []api.ToolResult{{CallID: c.ID, Content: text("picked")}}})
		}
	case "waiting_human_input":
		yes := "yes"
		s.signal(t, run.ID, api.SignalRequest{Answer: &yes})
	default:
	}
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}
