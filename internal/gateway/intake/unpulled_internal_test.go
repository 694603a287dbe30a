package intake

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// Messages that two consecutive checks find cause one warning; before the first count and
// without an answer there is no figure.
func TestUnpulledMessages(t *testing.T) {
	t.Parallel()
	var counts map[string]bus.Unpulled
	var failure error
	working := true
	var log bytes.Buffer
	u := NewUnpulled(func(context.Context) (map[string]bus.Unpulled, error) { return counts, failure }, func() bool { return working }, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	registry := prometheus.NewRegistry()
	registry.MustRegister(u)
	figures := func() (all []float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				all = append(all, m.GetGauge().GetValue())
			}
		}
		return all
	}
	if n := figures(); len(n) != 0 {
		t.Errorf("before the first count there are figures: %v", n)
	}
	held := int64(0)
	look := func(turns int64, err error) (warnings int) {
		counts, failure = map[string]bus.Unpulled{bus.UnpulledTurns: {Waiting: turns, Unacknowledged: held}}, err
		log.Reset()
		u.look(t.Context())
		return strings.Count(log.String(), `"level":"WARN"`)
	}
	for i, c := range []struct {
		turns    int64
		warnings int
	}{{0, 0}, {7, 0}, {7, 1}, {8, 0}, {0, 0}, {9, 0}, {9, 1}} {
		if n := look(c.turns, nil); n != c.warnings {
			t.Errorf("check %d with %d messages: %d warnings, want %d", i, c.turns, n, c.warnings)
		}
		if n := figures(); len(n) != 1 || n[0] != float64(c.turns) {
			t.Errorf("check %d: the metric is %v, want %d", i, n, c.turns)
		}
	}
	if !strings.Contains(log.String(), "start a worker") {
		t.Errorf("the warning has no remedy: %s", log.String())
	}
	held = 3 // by a worker that has no free slot
	if look(7, nil); figures()[0] != 0 {
		t.Errorf("messages count although a worker holds others: %v", figures())
	}
	working = false
	if look(7, nil); figures()[0] != 7 {
		t.Errorf("messages beside those that dead workers held do not count: %v", figures())
	}
	look(0, errors.New("no answer"))
	if n := figures(); len(n) != 0 {
		t.Errorf("without an answer there are figures: %v", n)
	}
}
