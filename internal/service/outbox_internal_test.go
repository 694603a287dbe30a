package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/restore"
)

// mailbox records what an outbox has sent, by number. It accepts what take allows.
type mailbox struct {
	mu   sync.Mutex
	take func(n int) bool
	got  []int
}

func (m *mailbox) letter(n int) func(context.Context) error {
	return func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.take(n) {
			return errors.New("away")
		}
		m.got = append(m.got, n)
		return nil
	}
}

// sent returns the numbers of the sent messages, sorted.
func (m *mailbox) sent() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.got))
}

func (m *mailbox) allow(take func(int) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take = take
}

// figure returns the value of a gauge or a counter.
func figure(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	m := families[0].GetMetric()[0]
	return m.GetGauge().GetValue() + m.GetCounter().GetValue()
}

func none(int) bool { return false }
func all(int) bool  { return true }

// An outbox has a fixed capacity. It keeps the oldest messages, logs once that it drops others, and counts all
// of those.
func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o, m := newOutbox(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), 10), &mailbox{take: none}
		for n := range 25 {
			<-o.post(m.letter(n))
		}
		if n := figure(t, o.sizes); n != 10 {
			t.Errorf("%v messages wait, want 10", n)
		}
		if n := figure(t, o.lost); n != 15 {
			t.Errorf("%v messages were dropped, want 15", n)
		}
		m.allow(all)
		o.close()
		if got, want := m.sent(), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want the oldest, %v", got, want)
		}
		for _, line := range []string{"NATS accepts no messages", "the queue of messages for NATS is full", "NATS accepts messages again"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("the log has %d times %q:\n%s", n, line, &log)
			}
		}
	})
}

// Messages that the bus rejects, however many come first, do not block others. The outbox leaves them to the
// sweeper.
func TestOutboxPassesRefusedMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const letters = 300
		var log bytes.Buffer
		o, m := newOutbox(slog.New(slog.NewJSONHandler(&log, nil)), 1000), &mailbox{take: none}
		for n := range letters {
			<-o.post(m.letter(n))
		}
		m.allow(func(n int) bool { return n >= 50 })
		time.Sleep(time.Minute)
		for n := range 10 { // the bus is reachable: it accepts these
			o.post(m.letter(letters + n))
			time.Sleep(time.Minute)
		}
		if n := len(m.sent()); n != letters-50+10 {
			t.Errorf("%d messages were sent, want %d", n, letters-50+10)
		}
		if n := figure(t, o.lost); n != 50 {
			t.Errorf("%v messages were dropped, want 50", n)
		}
		if refused, full := strings.Count(log.String(), "NATS refuses a message"), strings.Count(log.String(), "is full"); refused != 50 || full != 0 {
			t.Errorf("the log has %d refused messages and says %d times that the queue is full, want 50 and 0", refused, full)
		}
		o.close()
	})
}

// An outbox that is closed while the bus is unreachable ends after a moment.
func TestOutboxCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, m := newOutbox(slog.New(slog.DiscardHandler), 1000), &mailbox{take: none}
		<-o.post(m.letter(1))
		o.close()
		synctest.Wait()
		if n := figure(t, o.sizes); n != 0 {
			t.Errorf("%v messages wait after the end", n)
		}
	})
}

// While the deployment waits for the decision about an older copy of the store, the log does not blame NATS.
func TestOutboxDuringRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		o := newOutbox(slog.New(slog.NewTextHandler(&text, nil)), 10)
		o.post(func(context.Context) error { return fmt.Errorf("publish turn: %w", restore.ErrWaiting) })
		synctest.Wait()
		o.close()
		if log := text.String(); !strings.Contains(log, "turnpike restore status") || strings.Contains(log, "NATS accepts no messages") {
			t.Errorf("the log is %s", log)
		}
	})
}
