package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// meter is a model server that records the time of each call.
type meter struct {
	*httptest.Server

	mu    sync.Mutex
	calls []time.Time
}

func newMeter(t *testing.T, responses ...mockmodel.Response) *meter {
	t.Helper()
	mock, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{{Responses: responses}}})
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.calls = append(m.calls, time.Now())
		m.mu.Unlock()
		mock.ServeHTTP(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *meter) times() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// within checks that the server never received more calls since the start than the quota admits: a twentieth at
// once, and the rest at an even pace over the minute. A call that arrives later than admitted only lowers the
// count.
func (m *meter) within(t *testing.T, began time.Time, perMinute int) {
	t.Helper()
	times := m.times()
	slices.SortFunc(times, time.Time.Compare)
	each := 63 * time.Second / time.Duration(perMinute)
	for i, at := range times {
		if most := 1 + int((at.Sub(began)+3*time.Second)/each); i+1 > most {
			t.Fatalf("call %d comes %s after the beginning; %d are allowed by then", i+1, at.Sub(began), most)
		}
	}
}

// The runs of fifty workers together stay within one quota, as measured by the server, and all of them end
// (A17, I6).
func TestSharedRateLimit(t *testing.T) {
	t.Parallel()
	const workers, runs, perMinute = 50, 80, 600
	for name, open := range map[string]func(t *testing.T, prefix string) state.Store{
		"redis": func(t *testing.T, prefix string) state.Store {
			t.Helper()
			s, err := redisstore.Open(t.Context(), redisstore.Config{URL: testbed.Redis(t), Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
		"nats": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMeter(t, mockmodel.Response{Scripted: model.Scripted{Text: "done", Usage: &model.ScriptedUsage{InputTokens: 5, OutputTokens: 5}}})
			nc := testbed.NATS(t)
			prefix := "q" + ulid.Make().String()
			b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			var store state.Store
			if open != nil {
				store = open(t, prefix)
			} else {
				s, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: prefix})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				store = s
			}
			limits, err := model.ParseRateLimits(fmt.Appendf(nil, "- {provider: openai, requests_per_minute: %d}", perMinute))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.PutAgent(t.Context(), state.DefaultTenant, "a", fmt.Appendf(nil, `{"name":"a","model":{"provider":"openai","name":"m","base_url":"%s/v1"}}`, m.URL), false); err != nil {
				t.Fatal(err)
			}
			var ids []state.RunID
			for range runs {
				run := state.State{
					ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default",
					Priority: state.Normal, Limits: state.Limits{MaxTurns: 5},
				}
				run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hello")}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Millisecond}); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, run.ID)
			}
			began := time.Now()
			ctx, stop := context.WithCancel(context.Background())
			var group sync.WaitGroup
			t.Cleanup(func() { stop(); group.Wait() })
			for i := range workers {
				w, err := worker.New(store, b, worker.Config{
					ID: fmt.Sprintf("w%d", i), Slots: 4, RateLimits: limits, ShutdownGrace: time.Second,
					HeartbeatInterval: time.Minute, // on a busy machine, no worker counts as lost: its call would be repeated
					Providers:         map[string]model.Provider{"openai": openai.New(openai.Config{})},
				})
				if err != nil {
					t.Fatal(err)
				}
				group.Go(func() {
					if err := w.Run(ctx); err != nil {
						t.Errorf("Run: %v", err)
					}
				})
			}
			for _, id := range ids {
				eventually(t, "run "+string(id), func() error {
					s, err := store.Load(t.Context(), id)
					if err == nil && s.Status != state.Completed {
						err = fmt.Errorf("is %s (%s)", s.Status, s.Transition.Reason)
					}
					return err
				})
			}
			m.within(t, began, perMinute)
			if n := len(m.times()); n != runs {
				t.Errorf("%d calls for %d runs", n, runs)
			}
		})
	}
}

// The limits come from a file. A worker is killed while runs wait for their quota, and every run still ends,
// within the quota (A17, I2).
func TestRateLimitSurvivesKill(t *testing.T) {
	t.Parallel()
	const runs, perMinute = 80, 600
	m := newMeter(t, mockmodel.Response{Scripted: model.Scripted{Text: "done"}})
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "- {provider: openai, requests_per_minute: %d}\n", perMinute), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newDeployment(t, 0)
	s.env = append(s.env, "TURNPIKE_RATE_LIMITS="+file)
	for range 3 {
		s.workers = append(s.workers, spawn(t, "worker", s.env))
	}
	if _, err := s.client.PutAgent(t.Context(), "a", fmt.Appendf(nil, `{"name":"a","model":{"provider":"openai","name":"m","base_url":"%s/v1"}}`, m.URL)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var ids []string
	for range runs {
		run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: []byte(`"hello"`)}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.ID)
	}
	eventually(t, "runs wait", func() error {
		if len(m.times()) < 20 {
			return fmt.Errorf("%d calls yet", len(m.times()))
		}
		return nil
	})
	s.workers[0].kill()
	for _, id := range ids {
		eventually(t, "run "+id, func() error {
			run, err := s.client.Get(t.Context(), id)
			if err == nil && run.Status != string(state.Completed) {
				err = fmt.Errorf("is %s", run.Status)
			}
			return err
		})
	}
	m.within(t, began, perMinute)
}
