package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// broken is a bus whose turn or client streams have the state that a test sets.
type broken struct {
	*membus.Bus

	turns, intake atomic.Pointer[error]
}

func said(err *atomic.Pointer[error]) error {
	if e := err.Load(); e != nil {
		return *e
	}
	return nil
}

func (b *broken) Ready(context.Context) error       { return said(&b.turns) }
func (b *broken) IntakeReady(context.Context) error { return said(&b.intake) }

// A gateway that is probed every second logs an error when a dependency fails or fails differently, another
// each minute, and one line when it recovers.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := &broken{Bus: membus.New()}
		g, err := gateway.New(memstore.New(memstore.Config{}), b, gateway.Config{Logger: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		full, away := fmt.Errorf("stream TURNPIKE_SUBMIT_acme: %w", check.ErrNoWrites), errors.New("timeout")
		probe := func(times int, status, bus string, want ...string) {
			t.Helper()
			out.Reset()
			for range times {
				time.Sleep(time.Second) // of synctest's clock
				w := httptest.NewRecorder()
				g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
				var got struct{ Status, Bus string }
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Status != status || got.Bus != bus {
					t.Errorf("readyz = %+v, %v; want %s, %s", got, err, status, bus)
				}
			}
			var have []string
			for line := range strings.Lines(out.String()) {
				var l struct{ Level, Msg, Dependency string }
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				have = append(have, l.Level+" "+l.Dependency+": "+l.Msg)
			}
			if strings.Join(have, ", ") != strings.Join(want, ", ") {
				t.Errorf("the log has %v, want %v", have, want)
			}
		}
		const (
			noWrites = "ERROR bus: dependency takes no writes"
			silent   = "ERROR bus: dependency does not answer"
			back     = "INFO bus: dependency is ready again"
		)
		probe(10, "ok", "ok")
		b.intake.Store(&full)
		probe(50, "degraded", "takes no writes", noWrites)
		b.turns.Store(&away)
		probe(50, "degraded", "does not answer", silent)
		probe(130, "degraded", "does not answer", silent, silent)
		b.turns.Store(nil)
		b.intake.Store(nil)
		probe(10, "ok", "ok", back)
		b.turns.Store(&full)
		probe(10, "degraded", "takes no writes", noWrites)
	})
}

// A probe that disconnects before the answer does not count as an outage.
func TestProberThatLeavesIsNoOutage(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &broken{Bus: membus.New()}
	g, err := gateway.New(memstore.New(memstore.Config{}), b, gateway.Config{Logger: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	left, leave := context.WithCancel(t.Context())
	leave()
	b.turns.Store(&context.Canceled)
	g.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(left, http.MethodGet, "/readyz", nil))
	if strings.Contains(out.String(), "dependency") {
		t.Errorf("the log has %s", out.String())
	}
}
