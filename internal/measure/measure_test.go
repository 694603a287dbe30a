package measure

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func TestMain(m *testing.M) {
	if Child() { // of a deployment that a test measures
		return
	}
	os.Exit(m.Run())
}

// shortForms says how each scenario is tested, and what it must measure: the number of its figures, and of
// those with a floor.
var shortForms = map[string]struct {
	figures, floors int
	always          bool // also by make test
	jetStream       bool // also with checkpoints there
}{
	"turns": {8, 5, true, true}, "alone": {4, 3, true, false}, "history": {2, 0, false, true}, "parked": {6, 0, false, true},
	"abort": {4, 4, true, true}, "submit": {3, 3, false, false}, "readers": {4, 0, true, true}, "workers": {3, 0, false, false},
	"fair": {5, 0, false, false}, "stream": {2, 0, false, false}, "steady": {3, 0, false, false}, "waiting": {2, 0, false, true},
	"messages": {1, 0, false, true}, "death": {5, 0, false, false}, "sleep": {3, 0, true, false}, "backlog": {6, 0, false, false}, "growth": {25, 0, false, true},
	"lists": {11, 0, false, true}, "bomb": {3, 0, true, true}, "children": {2, 0, false, true}, "trees": {4, 0, false, false},
	"retention": {1, 0, false, false}, "intake": {3, 0, false, false}, "attack": {4, 0, false, false},
	"webhooks": {11, 0, true, true}, "receivers": {16, 0, false, false},
	"triggers": {5, 0, false, true}, "fleet": {45, 0, false, false},
	"start": {}, // runs the command turnpike, whose tests cover it
}

// residentLimit bounds the memory of a gateway and of a worker in these short forms.
const residentLimit = 256

// In each scenario no run is lost, no effect happens twice, no live worker is evicted, and a late turn writes
// no more than an early one (I1, I2, I4, I12). All figures are present; their values are not tested, except
// bytes.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		form, ok := shortForms[name]
		if !ok {
			t.Errorf("scenario %s has no short form", name)
		}
		for _, store := range []string{"redis", "jetstream"} {
			if form.figures == 0 || testing.Short() && !form.always || store == "jetstream" && (!form.jetStream || testing.Short()) {
				continue
			}
			t.Run(name+"/"+store, func(t *testing.T) {
				t.Parallel()
				report, err := Run(t.Context(), Config{Only: []string{name}, Short: true, Repeat: 2, Store: store, Profile: "durable", Dir: t.TempDir()}, t.Output())
				if err != nil {
					t.Fatal(err)
				}
				t.Log("\n" + report.String())
				if report.Failed() || len(report.Results) != 1 {
					t.Fatalf("failed: %v", report.Results)
				}
				r, floors := report.Results[0], 0
				for _, f := range r.Figures {
					if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) {
						t.Errorf("%s: %s is %v", name, f.Name, f.Value)
					}
					if f.Floor != nil {
						floors++
						if !(f.Floor.Value >= 0) {
							t.Errorf("%s: the floor of %s is %v", name, f.Name, f.Floor.Value)
						}
					}
					if strings.HasPrefix(f.Name, "bytes to Redis for a turn") && f.missed() {
						t.Errorf("%s is %v: %s", f.Name, f.Value, f.Note)
					}
				}
				if store == "redis" && (len(r.Figures) < form.figures || floors != form.floors) {
					t.Errorf("%d figures, %d of them with a floor, want %d and %d", len(r.Figures), floors, form.figures, form.floors)
				}
				for _, p := range r.Processes {
					if !(p.PeakMiB > 0) || p.PeakMiB > residentLimit && name != "attack" && p.Name != "redis" {
						t.Errorf("%s had %v MiB at most", p.Name, p.PeakMiB)
					}
				}
			})
		}
	}
}

// A ratio is omitted if its floor varies by more than a tenth or has a single repetition: it would be
// meaningless.
func TestNoisyFloorHasNoRatio(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		floor  []float64
		spread float64
		quiet  bool
	}{
		{"quiet", []float64{100, 104, 96}, 0.08, true},
		{"just quiet", []float64{100, 110, 105, 100, 100}, 0.10, true},
		{"noisy", []float64{100, 112, 100}, 0.12, false},
		{"once", []float64{100}, 0, false},
	} {
		f := compare("turns/s", "/s", []float64{40, 60, 50}, test.floor)
		if f.Value != 50 || f.Floor.Value != 100 || math.Abs(f.Floor.Spread-test.spread) > 1e-9 {
			t.Errorf("%s: %v over %+v", test.name, f.Value, *f.Floor)
		}
		if (f.Floor.Ratio != nil) != test.quiet || test.quiet && *f.Floor.Ratio != 0.5 {
			t.Errorf("%s: the ratio is %v", test.name, f.Floor.Ratio)
		}
		if refused := strings.Contains(f.String(), "no ratio"); refused == test.quiet || strings.Contains(f.String(), "ratio 0.50") != test.quiet {
			t.Errorf("%s: printed %q", test.name, f)
		}
	}
	if f := compare("processor time", "ms", []float64{1, 1}, []float64{0, 0}); f.Floor.Ratio != nil || f.Floor.Spread != 1 {
		t.Errorf("over a floor of nothing: %+v", *f.Floor)
	}
	// The same holds through the functions that scenarios call, with a floor that varies, and a first
	// repetition that does not count.
	one, under := &trial{repeat: 3}, []float64{1000, 100, 130, 90}
	own, bare, err := interleave(one, &floor{rdb: redis.NewClient(&redis.Options{})}, func() (float64, error) { return 50, nil }, func() (next float64, err error) {
		next, under = under[0], under[1:]
		return next, nil
	})
	if err != nil || len(own) != 3 || len(bare) != 3 {
		t.Fatalf("interleaved %v and %v, %v", own, bare, err)
	}
	compared(one, "turns/s", "/s", own, bare, func(v float64) float64 { return v })
	if f := one.result.Figures[0]; f.Floor == nil || f.Floor.Ratio != nil || f.Floor.Spread != 0.4 || f.Floor.Value != 100 {
		t.Errorf("over a noisy floor: %s", f)
	}
	if f := compare("turns/s", "/s", []float64{50}, nil); f.Floor != nil {
		t.Errorf("a figure without a floor has %+v", f.Floor)
	}
}

// A run that does not complete is a failure in every function that waits for runs.
func TestLostRunFails(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/batches/") {
			_, _ = w.Write([]byte(`{"id": "b", "total": 3, "counts": {"completed": 2, "failed": 1}, "done": true, "items": []}`))
			return
		}
		_, _ = w.Write([]byte(`{"id": "run_1", "status": "failed", "finished_at": "2026-01-01T00:00:00.000Z"}`))
	}))
	defer server.Close()
	one := &trial{Deployment: &rig.Deployment{Client: api.New(server.URL)}}
	if err := one.reach(t.Context(), []string{"b"}, state.Completed); err != nil || one.result.Failed != 1 {
		t.Errorf("a batch with a failed run: %v, %v", err, one.result.Failures)
	}
	if _, err := one.completed(t.Context(), one.Client, "run_1"); err != nil || one.result.Failed != 2 {
		t.Errorf("a failed run: %v, %v", err, one.result.Failures)
	}
	report := &Report{Results: []Result{one.result}}
	if text := report.String(); !report.Failed() || !strings.Contains(text, "FAILED 1 runs of batch b are failed") || !strings.Contains(text, "logs are in") {
		t.Errorf("printed %s", text)
	}
}

func TestChosen(t *testing.T) {
	t.Parallel()
	all, err := Config{Only: []string{"all"}}.chosen()
	if err != nil || len(all) != len(Names()) {
		t.Errorf("all = %v, %v", all, err)
	}
	if some, err := (Config{Only: []string{"alone", "turns"}}).chosen(); err != nil || len(some) != 2 || some[0].name != "turns" {
		t.Errorf("alone, turns = %v, %v", some, err)
	}
	for _, wrong := range []Config{{Only: []string{"nonsense"}}, {Only: []string{"turns", "alone"}, Size: 10}} {
		if wrong.Check() == nil {
			t.Errorf("%+v can be measured", wrong)
		}
	}
}

// Incomplete last lines of a process do not count; steps count by worker.
func TestSteps(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "steps")
	if steps, err := readSteps(file); err != nil || len(steps) != 0 {
		t.Errorf("without a file: %v, %v", steps, err)
	}
	if err := os.WriteFile(file, []byte("worker1 run_1 1000\nworker2 run_2 2000\nworker1 run_1 4000\nworker1 run_1 50"), 0o600); err != nil {
		t.Fatal(err)
	}
	steps, err := readSteps(file)
	if err != nil || len(steps) != 3 || steps[1].run != "run_2" {
		t.Fatalf("steps = %v, %v", steps, err)
	}
	if got := between(steps); len(got) != 2 || got[1] != 0.002 {
		t.Errorf("between = %v", got)
	}
	taken := byWorker(steps, time.Unix(0, 1000), time.Unix(0, 4000))
	if len(taken) != 2 || taken["worker1"] != 1 || unevenness(taken, 2) != 1 || unevenness(map[string]int{"a": 4}, 2) != 4 {
		t.Errorf("byWorker = %v", taken)
	}
}

func TestFigureString(t *testing.T) {
	t.Parallel()
	for text, f := range map[string]Figure{
		"want ≤ 2  MISSED  why": {Name: "a", Value: 3, Unit: "ms", Most: 2, Note: "why"},
		"want ≥ 2.50  MISSED":   {Name: "a", Value: 2, Least: 2.5},
		"12.3 ms    want ≤ 100": {Name: "a", Value: 12.34, Unit: "ms", Most: 100},
		"0.25":                  {Name: "a", Value: 0.25},
	} {
		if got := f.String(); !strings.HasSuffix(got, text) {
			t.Errorf("printed %q, want the end %q", got, text)
		}
	}
	var all []float64
	for i := range 200 {
		all = append(all, float64(200-i)) // 1 to 200, backwards
	}
	if p50, p99 := quantile(all, 0.5), quantile(all, 0.99); p50 != 101 || p99 != 199 || !math.IsNaN(quantile(nil, 0.5)) {
		t.Errorf("p50, p99 = %v, %v", p50, p99)
	}
}

// A closed loop counts completed operations, and an open one does not wait for slow ones.
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
		for len(all) < cap(all) { // none is done before the last has begun
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

// The error of a demo that ends without a run names its log.
func TestDemoWithoutRun(t *testing.T) {
	t.Parallel()
	for self, want := range map[string]string{"true": "ended without a run: find the cause in ", "false": "turnpike demo failed: exit status 1: find the cause in "} {
		_, err := (&trial{dir: t.TempDir()}).startDemo(t.Context(), self)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "demo.log") {
			t.Errorf("startDemo of %s = %v, want %q and the log", self, err, want)
		}
	}
}
