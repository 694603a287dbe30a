package bench

import (
	"context"
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

// Everything that is to be measured is, and what is counted and not timed is right. The
// short form measures some of it.
func TestShort(t *testing.T) {
	t.Parallel()
	only := names()
	if testing.Short() {
		only = []string{"turns", "history", "abort"}
	}
	dir := t.TempDir()
	if err := rig.Build(t.Context(), dir, false, rig.Module+"cmd/turnpike"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "turnpike"), "bench", "--only", strings.Join(only, ","), "--short", "-o", "json")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + r.String())
	if r.Turns == nil || r.Real.TurnsPerSecond <= 0 || r.Floor.TurnsPerSecond <= 0 {
		t.Errorf("no turns: %+v", r.Turns)
	}
	rows := map[string]int{}
	for _, row := range r.Rows {
		rows[row.Measure]++
		if strings.HasSuffix(row.What, ", in the streams") {
			// A turn is taken off its stream when it is done, and no event is stored.
			if row.Value < 0 || row.Value > 100 {
				t.Errorf("%s: %s leaves %v bytes", row.Measure, row.What, row.Value)
			}
		} else if !(row.Value > 0) || math.IsInf(row.Value, 0) {
			t.Errorf("%s: %s is %v", row.Measure, row.What, row.Value)
		}
		if row.What == "the same worker: bytes to Redis, turns 41–60 over 1–20" && row.Value > 1.1 { // I12
			t.Errorf("a late turn writes %v times the bytes of an early one", row.Value)
		}
	}
	for _, name := range only[1:] {
		if rows[name] == 0 {
			t.Errorf("nothing was measured of %s", name)
		}
	}
}

func TestChosen(t *testing.T) {
	t.Parallel()
	all, err := Config{Only: []string{"all"}}.chosen()
	if err != nil || len(all) != len(measures())+1 {
		t.Errorf("all = %v, %v", all, err)
	}
	if some, err := (Config{Only: []string{"size", "turns"}}).chosen(); err != nil || len(some) != 2 || !some["size"] || !some["turns"] {
		t.Errorf("size, turns = %v, %v", some, err)
	}
	if _, err := (Config{Only: []string{"nonsense"}}).chosen(); err == nil {
		t.Error("nonsense can be measured")
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	var ms []float64
	for i := range 200 {
		ms = append(ms, float64(200-i)) // 1 to 200, backwards
	}
	if got := latency(ms); got.P50 != 101 || got.P99 != 199 {
		t.Errorf("latency = %+v", got)
	}
	if got := spreadOf([]int{4, 2, 3}); got != 2 {
		t.Errorf("spreadOf = %v", got)
	}
	if got := spreadOf([]int{4, 0}); got != 4 {
		t.Errorf("spreadOf with an idle one = %v", got)
	}
}

// A loop counts what was done, and an open one does not wait for what is slow.
func TestLoops(t *testing.T) {
	t.Parallel()
	var done atomic.Int64
	rate, err := closedLoop(t.Context(), 10*time.Millisecond, func(context.Context) error {
		done.Add(1)
		return nil
	})
	if err != nil || rate <= 0 || done.Load() < 64 {
		t.Errorf("closedLoop = %v, %v after %d", rate, err, done.Load())
	}
	all := make(chan struct{}, 100)
	took, err := openLoop(t.Context(), 10_000, 10*time.Millisecond, func(ctx context.Context) error {
		all <- struct{}{}
		for len(all) < cap(all) { // nobody is done before the last has begun
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil || len(took) != 100 {
		t.Errorf("openLoop = %d times, %v", len(took), err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	got := table([]Row{{Measure: "m", What: "a", Value: 3, Unit: "ms", Target: "≤ 2", Floor: 1.5, Note: "n"}, {Measure: "m", What: "b", Value: 0.25}})
	want := "m                                                                    measured            to reach      floor    ratio\n" +
		"  a                                                                         3 ms              ≤ 2       1.50     2.00  n\n" +
		"  b                                                                      0.25"
	if got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}
