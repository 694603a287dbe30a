package service

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// orders is a stream that always has another message, and the consumer of it.
type orders struct {
	mu    sync.Mutex
	last  int
	back  []int // numbers of messages that are to be delivered again
	acked atomic.Int64
}

func (o *orders) Inspect(context.Context, string) (StreamInfo, error) {
	return StreamInfo{Subjects: []string{"orders"}, Now: time.Now()}, nil
}

func (o *orders) Open(context.Context, ConsumerSpec) (StreamConsumer, error) { return o, nil }

func (o *orders) Pending(context.Context, string, string) (pending, inFlight int64, err error) {
	return 0, 0, nil
}

func (o *orders) Remove(context.Context, string, string) error { return nil }

func (o *orders) Fetch(ctx context.Context, most int, take func(StreamMessage)) error {
	for range most {
		take(order{o, o.next()})
	}
	return ctx.Err()
}

func (o *orders) next() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.back) > 0 {
		n, o.back = o.back[0], o.back[1:]
		return n
	}
	o.last++
	return o.last
}

// order is a message.
type order struct {
	*orders

	n int
}

func (m order) ID() string                           { return fmt.Sprint("order ", m.n) }
func (m order) Subject() string                      { return "orders" }
func (m order) Headers() map[string][]string         { return nil }
func (m order) Size() int64                          { return 2 }
func (m order) Delivered() int                       { return 1 }
func (m order) Body(context.Context) ([]byte, error) { return []byte(`{}`), nil }
func (m order) Terminate(string) error               { return io.ErrUnexpectedEOF }
func (m order) InProgress() error                    { return nil }

func (m order) Ack() error {
	m.acked.Add(1)
	return nil
}

func (m order) Nak(time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.back = append(m.back, m.n)
	return nil
}

// A trigger processes at most max_per_minute messages in any minute, also if it is paused and resumed, or deleted and
// put again. The messages that waited when it was stopped do not count.
func TestTriggerRateWithPauses(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(t *testing.T, s *Service, c access.Caller, put func(paused bool)){
		"pause": func(_ *testing.T, _ *Service, _ access.Caller, put func(bool)) { put(true) },
		"delete": func(t *testing.T, s *Service, c access.Caller, _ func(bool)) {
			if err := s.Triggers.Delete(t.Context(), c, "t"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const most = 2
				stream := &orders{}
				s, err := New(memstore.New(memstore.Config{Now: time.Now}), membus.New(), Config{
					Known: agent.Known{Providers: model.BuiltinSpecs()}, Prefix: "turnpike", Tenant: state.DefaultTenant, MaxBody: 1 << 20, RedeliveryDelay: time.Minute,
					Random: rand.Reader, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Streams: stream,
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				c := access.Caller{Principal: access.Anonymous(), Tenant: state.DefaultTenant, Roles: access.Roles()}
				if _, err := s.Agents.Put(t.Context(), c, "a", []byte("name: a\nmodel: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
					t.Fatal(err)
				}
				put := func(paused bool) {
					t.Helper()
					settings := api.TriggerSettings{Stream: "ORDERS", Run: &api.HookRun{Agent: "a"}, MaxPerMinute: most, Paused: paused}
					if _, _, err := s.Triggers.Put(t.Context(), c, "t", settings); err != nil {
						t.Fatal(err)
					}
				}
				put(false)
				var keeping sync.WaitGroup
				keeping.Go(func() { s.Triggers.Keep(t.Context()) })
				for minute := range 5 {
					time.Sleep(5 * time.Second)
					for range 3 {
						if got, want := stream.acked.Load(), int64(most*(minute+1)); got != want {
							t.Errorf("minute %d: %d messages were processed, want %d", minute, got, want)
						}
						stop(t, s, c, put)
						time.Sleep(5 * time.Second)
						put(false)
						time.Sleep(5 * time.Second)
					}
					time.Sleep(25 * time.Second)
				}
			})
		})
	}
}
