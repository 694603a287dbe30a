package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// interruptedBus is a bus that is sometimes unreachable, and records what it stores. While unreachable it fails
// at once or, if silent, does not answer.
type interruptedBus struct {
	bus.Bus

	silent bool

	mu   sync.Mutex
	away bool
	sent []string
}

func (b *interruptedBus) set(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

func (b *interruptedBus) reach(ctx context.Context) error {
	b.mu.Lock()
	away := b.away
	b.mu.Unlock()
	if away && b.silent {
		<-ctx.Done()
	}
	if away {
		return errors.New("connection closed")
	}
	return nil
}

func (b *interruptedBus) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	if err := b.reach(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	b.sent = append(b.sent, id)
	b.mu.Unlock()
	return b.Bus.PublishTurn(ctx, t, id)
}

func (b *interruptedBus) PublishAbort(ctx context.Context, a bus.Abort) error {
	if err := b.reach(ctx); err != nil {
		return err
	}
	return b.Bus.PublishAbort(ctx, a)
}

func (b *interruptedBus) messages() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sent)
}

// If the first gateway could not publish the turn, a submission repeated at another gateway under the same key
// publishes it without waiting for a sweep. The test has no worker that could sweep.
func TestRepeatedSubmissionIsPublished(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	cut, whole := &interruptedBus{Bus: membus.New(), away: true}, &interruptedBus{Bus: membus.New()}
	gatewayOn := func(b bus.Bus) *deployment {
		g, err := gateway.New(store, b, gateway.Config{})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(g.Handler())
		t.Cleanup(server.Close)
		return &deployment{t: t, url: server.URL, client: api.New(server.URL)}
	}
	first, second := gatewayOn(cut), gatewayOn(whole)
	t.Cleanup(func() { cut.set(false) })
	first.put("hello", `{model: {provider: scripted, responses: [{text: hi}]}}`)
	submit := func(s *deployment) string {
		run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: json.RawMessage(`"x"`)}, "order 7")
		if err != nil {
			t.Fatal(err)
		}
		return run.ID
	}
	id := submit(first)
	for range 2 {
		if again := submit(second); again != id {
			t.Fatalf("the key returns %s and %s", id, again)
		}
	}
	// Repeated publishes use one message id, so that the bus stores the message once. A submission does not
	// wait long for the publish.
	eventually(t, "both are published", func() bool { return len(whole.messages()) >= 2 })
	if diff := cmp.Diff([]string{id + ":1", id + ":1"}, whole.messages()); diff != "" {
		t.Errorf("messages published (-want +got):\n%s", diff)
	}
	if sent := cut.messages(); len(sent) != 0 {
		t.Errorf("the first gateway published %q", sent)
	}
}

// exchange sends a request to a gateway, and returns the response and its duration.
func exchange(t *testing.T, g *gateway.Gateway, method, path, body string) (*httptest.ResponseRecorder, time.Duration) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	g.Handler().ServeHTTP(w, r)
	if w.Code >= http.StatusBadRequest {
		t.Fatalf("%s %s = %d %.300s", method, path, w.Code, w.Body)
	}
	return w, time.Since(began)
}

func newHello(t *testing.T, b bus.Bus) *gateway.Gateway {
	t.Helper()
	g, err := gateway.New(memstore.New(memstore.Config{}), b, gateway.Config{Logger: slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, g, http.MethodPut, "/v1/agents/hello", `{"model": {"provider": "scripted", "responses": [{"text": "hi"}]}}`)
	return g
}

// Requests are answered within 100 ms while the bus is unreachable, both before and after the gateway has
// noticed the outage. The clock is the bubble's.
func TestAnswersWhileBusIsAway(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%t", silent), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &interruptedBus{Bus: membus.New(), silent: silent, away: true}
				g := newHello(t, b)
				var run api.Run
				timed := func(method, path, body string) {
					t.Helper()
					w, took := exchange(t, g, method, path, body)
					if took > 100*time.Millisecond {
						t.Errorf("%s %s took %v", method, path, took)
					}
					if path == "/v1/runs" {
						if err := json.Unmarshal(w.Body.Bytes(), &run); err != nil {
							t.Fatal(err)
						}
					}
				}
				batch := `{"runs": [` + strings.Repeat(`{"agent": "hello", "input": "x"}, `, 999) + `{"agent": "hello", "input": "x"}]}`
				for range 3 { // before the first attempt has ended, and after it
					for range 10 {
						timed(http.MethodPost, "/v1/runs", `{"agent": "hello", "input": "x"}`)
						timed(http.MethodPost, "/v1/runs/"+run.ID+"/cancel", `{}`)
					}
					timed(http.MethodPost, "/v1/runs:batch", batch)
					timed(http.MethodPost, "/v1/runs:cancel", `{"filter": {"status": ["queued"]}}`)
					time.Sleep(5 * time.Second)
				}
				b.set(false)
				time.Sleep(time.Minute) // the outbox ends with the bubble
			})
		})
	}
}

// After an outage the gateway soon publishes the turns it could not publish, each once and the oldest first,
// however long the outage lasted. Later turns do not overtake them.
func TestOutboxKeepsOrder(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%t", silent), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &interruptedBus{Bus: membus.New(), silent: silent}
				g := newHello(t, b)
				var want []string
				submit := func(n int) {
					for range n {
						w, _ := exchange(t, g, http.MethodPost, "/v1/runs", `{"agent": "hello", "input": "x"}`)
						var run api.Run
						if err := json.Unmarshal(w.Body.Bytes(), &run); err != nil {
							t.Fatal(err)
						}
						want = append(want, run.ID+":1")
					}
				}
				submit(3)
				b.set(true)
				submit(500)
				time.Sleep(10 * time.Minute)
				submit(500)
				b.set(false)
				submit(10) // behind all waiting turns
				time.Sleep(5 * time.Second)
				got := b.messages()
				if len(got) != len(want) {
					t.Fatalf("%d messages, want %d", len(got), len(want))
				}
				// The outbox sends some turns concurrently, and the turn that probes the bus can be at any
				// position.
				const disorder = 256 + 8
				for i, id := range want {
					at := slices.Index(got, id)
					if at < 0 {
						t.Fatalf("turn %d of %d was not published", i, len(want))
					}
					if at > i+disorder {
						t.Errorf("turn %d was published as number %d", i, at)
					}
				}
				for i := len(want) - 10; i < len(want); i++ {
					if at := slices.Index(got, want[i]); at < len(want)-disorder {
						t.Errorf("turn %d, which came last, was published as number %d", i, at)
					}
				}
			})
		})
	}
}
