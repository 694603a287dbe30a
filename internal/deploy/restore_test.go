package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/doctor"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// payments counts the effects of a tool, by run and argument.
type payments struct {
	mu     sync.Mutex
	made   map[string]int
	second chan struct{} // closed when calls with the argument 2 may be made
}

func (p *payments) pay(ctx context.Context, c tool.Call) (tool.Result, error) {
	if strings.Contains(string(c.Arguments), "2") {
		p.note(fmt.Sprintf("%s asks for 2", c.Run))
		select {
		case <-p.second:
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		}
	}
	p.note(fmt.Sprintf("%s pays %s", c.Run, c.Arguments))
	return tool.Result{Content: "paid"}, nil
}

func (p *payments) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made[what]++
}

func (p *payments) all() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.made)
}

// restored is a deployment whose Redis was restored from an older copy while runs were in flight.
type restored struct {
	t        *testing.T
	dir      string // of Redis
	server   *testbed.RedisServer
	d        *deploy.Deployment
	c        *api.Client
	w        *worker.Worker
	cfg      deploy.Config
	registry *prometheus.Registry
	redis    *redis.Client
	payments *payments
	runs     []string
	late     string // submitted after the restore
}

// restoredRuns returns the number of runs in flight during the restore; it is lower under the race detector.
func restoredRuns() int {
	if testing.Short() {
		return 60
	}
	return 300
}

// restoredLease is longer than a pause of a busy machine: a call whose lease expired would have an unknown
// outcome, and its run would continue before the copy is made.
const restoredLease = 6 * time.Second

func newRestored(t *testing.T) *restored {
	r := newRestorable(t)
	for range restoredRuns() {
		r.runs = append(r.runs, r.submit())
	}
	testbed.Eventually(t, "every run makes its second call", func() error { return r.effects(2 * restoredRuns()) })
	r.restore()
	r.late = r.submit()
	return r
}

// ended returns a run that has ended. The Wait of the client also returns runs that wait for their batch, and a
// decision about a restore only requests the cancellation of these.
func (r *restored) ended(run string) (api.Run, error) {
	for _, err := range r.c.Events(r.t.Context(), run, 0) {
		if err != nil {
			return api.Run{}, err
		}
	}
	return r.c.Get(r.t.Context(), run)
}

// newRestorable returns a deployment without runs.
func newRestorable(t *testing.T) *restored {
	dir := t.TempDir()
	server := testbed.RedisProcess(t, "--dir", dir, "--save", "", "--appendonly", "no")
	r := &restored{t: t, dir: dir, server: server, registry: prometheus.NewRegistry(), payments: &payments{made: map[string]int{}, second: make(chan struct{})}}
	r.cfg = deploy.Config{NATSURL: testbed.NATSServer(t).URL(), RedisURL: server.URL, Lease: restoredLease, Registry: r.registry}
	var err error
	if r.d, err = deploy.Open(t.Context(), r.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.d.Close)
	options, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.redis = redis.NewClient(options)
	t.Cleanup(func() { _ = r.redis.Close() })
	cfg := durable(r.payments.pay)
	cfg.SweepInterval, cfg.RedeliveryDelay = 50*time.Millisecond, 500*time.Millisecond
	if r.w, err = r.d.NewWorker(cfg); err != nil {
		t.Fatal(err)
	}
	goes(t, r.w.Run)
	r.c = serve(t, r.d)
	const payer = `
name: payer
instructions: You pay.
tools: [{name: book, description: Pays once.}]
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: book, arguments: {n: 1}}]}
    - {tool_calls: [{name: book, arguments: {n: 2}}]}
    - {tool_calls: [{name: book, arguments: {n: 3}}]}
    - {text: Paid.}
`
	if _, err := r.c.PutAgent(t.Context(), "payer", []byte(payer)); err != nil {
		t.Fatal(err)
	}
	return r
}

// restore copies Redis, lets every run complete, and replaces Redis by the copy.
func (r *restored) restore() {
	t := r.t
	t.Helper()
	if err := r.redis.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(filepath.Join(r.dir, "dump.rdb"))
	if err != nil {
		t.Fatal(err)
	}
	close(r.payments.second)
	for _, run := range r.runs {
		if done, err := r.ended(run); err != nil || done.Status != string(state.Completed) {
			t.Fatalf("run %s: %v %v", run, done.Status, err)
		}
	}
	r.pass(15) // 30 seconds of running time
	r.server.Kill()
	if err := os.WriteFile(filepath.Join(r.dir, "dump.rdb"), copied, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Start(); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "the deployment waits", func() error {
		if ready, err := r.c.Readiness(t.Context()); err != nil || !strings.HasPrefix(ready.Restore, restore.Name) || ready.Status != "degraded" {
			return fmt.Errorf("readiness %+v, %w", ready, errors.Join(err, errors.New("want waiting_restore")))
		}
		return nil
	})
}

// pass advances the mark as if the deployment had run for n intervals.
func (r *restored) pass(n int) {
	for range n {
		if err := r.d.Watch().Look(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *restored) submit() string {
	r.t.Helper()
	started, err := r.c.Submit(r.t.Context(), api.SubmitRequest{Agent: "payer", Input: json.RawMessage(`"Pay."`)}, "")
	if err != nil {
		r.t.Fatal(err)
	}
	return started.ID
}

// effects returns an error unless exactly want different effects were recorded.
func (r *restored) effects(want int) error {
	if n := len(r.payments.all()); n != want {
		return fmt.Errorf("%d effects, want %d", n, want)
	}
	return nil
}

// holds lets leases and delays expire, and checks that nothing happens in the meantime.
func (r *restored) holds() {
	r.t.Helper()
	before, effects := r.statuses(), r.payments.all()
	began, err := r.redis.Time(r.t.Context()).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	testbed.Eventually(r.t, "leases of the copy have run out", func() error {
		now, err := r.redis.Time(r.t.Context()).Result()
		if err == nil && now.Sub(began) < 2*r.cfg.Lease {
			err = errors.New("not yet")
		}
		return err
	})
	after := r.statuses()
	if !maps.Equal(before, after) || after[r.late] != string(state.Queued) {
		r.t.Errorf("the status of runs changed, or %q of a new run is not queued", after[r.late])
	}
	for what, n := range r.payments.all() {
		if n > 1 || effects[what] != n {
			r.t.Errorf("%s: %d times, %d before", what, n, effects[what])
		}
	}
}

func (r *restored) statuses() map[string]string {
	r.t.Helper()
	var mu sync.Mutex
	found := map[string]string{}
	var group errgroup.Group
	group.SetLimit(16)
	for _, run := range append([]string{r.late}, r.runs...) {
		group.Go(func() error {
			got, err := r.c.Get(r.t.Context(), run)
			mu.Lock()
			defer mu.Unlock()
			found[run] = fmt.Sprint(got.Status)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		r.t.Fatal(err)
	}
	return found
}

// waits checks that every interface reports the wait.
func (r *restored) waits() {
	r.t.Helper()
	if err := r.w.Ready(r.t.Context()); err == nil || !strings.Contains(err.Error(), restore.Name) {
		r.t.Errorf("the worker is ready: %v", err)
	}
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	value := 0.0
	for _, f := range families {
		if f.GetName() == "turnpike_waiting_restore" {
			value = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if value != 1 {
		r.t.Errorf("turnpike_waiting_restore is %v", value)
	}
	named := false
	for _, f := range doctor.Findings(r.t.Context(), r.cfg, "") {
		named = named || !f.OK && strings.Contains(f.Detail, restore.Name)
		if !f.OK && f.Name == "store: lost runs" {
			r.t.Errorf("doctor reports lost runs: %s", f.Detail)
		}
	}
	if !named {
		r.t.Error("doctor finds nothing")
	}
}

// Redis is restored from an older copy while runs are in flight. Nothing happens until an operator decides;
// after accept, every run continues from the copy.
func TestRestoreIsAccepted(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.waits()
	r.holds()
	report, err := r.c.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Status != api.RestoreWaiting || report.Counts.Active < restoredRuns() || report.Counts.Calls != restoredRuns() || report.BehindSeconds < 20 {
		t.Errorf("report: %s, %d s, %+v", report.Status, report.BehindSeconds, report.Counts)
	}
	for _, run := range report.Runs {
		if run.RunID == r.runs[0] && (len(run.Calls) != 1 || run.Calls[0].Tool != "book" || run.Calls[0].Idempotent) {
			t.Errorf("calls of run %s: %+v", run.RunID, run.Calls)
		}
	}
	if _, err := r.c.AcceptRestore(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, run := range append([]string{r.late}, r.runs...) {
		if done, err := r.ended(run); err != nil || done.Status != string(state.Completed) {
			t.Fatalf("run %s: %v %v", run, done.Status, err)
		}
	}
	_, err = r.c.AcceptRestore(t.Context())
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeNoRestore {
		t.Errorf("a second decision: %v", err)
	}
	if err := r.w.Ready(t.Context()); err != nil {
		t.Errorf("the worker is not ready: %v", err)
	}
}

// Abandon cancels the runs that may have progressed beyond the copy. No call is made twice.
func TestRestoreIsAbandoned(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.holds()
	r.late = r.submit() // ten seconds after the last mark
	report, err := r.c.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range report.Runs {
		if run.RunID == r.late {
			t.Errorf("the report has a run that was submitted during the wait: %+v", run)
		}
	}
	decided, err := r.c.AbandonRestore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if decided.Cancelled < restoredRuns() {
		t.Errorf("%d runs were cancelled, want %d", decided.Cancelled, restoredRuns())
	}
	for _, run := range r.runs {
		if done, err := r.ended(run); err != nil || done.Status != string(state.Cancelled) {
			t.Fatalf("run %s: %v %v", run, done.Status, err)
		}
	}
	if done, err := r.ended(r.late); err != nil || done.Status != string(state.Completed) {
		t.Errorf("the run submitted during the wait: %v %v, want completed", done.Status, err)
	}
	for what, n := range r.payments.all() {
		if n > 1 {
			t.Errorf("%s: %d times", what, n)
		}
	}
	if err := check.Err(doctor.Findings(t.Context(), r.cfg, "")); err != nil {
		t.Error(err)
	}
}

// The copy also has runs that wait for other runs: those of a batch, and parents. They have continued since, so the
// report lists them and Abandon cancels them. The cancellation of the runs that they wait for starts none of them.
func TestRestoreAbandonsRunsThatWaitForOthers(t *testing.T) {
	t.Parallel()
	r := newRestorable(t)
	for _, agents := range [][2]string{{"boss", "payer"}, {"chief", "boss"}} {
		definition := fmt.Sprintf(`
name: %s
tools: [{name: delegate, kind: agent, agent: %s}, {name: book, description: Pays once.}]
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: delegate, arguments: {task: Pay.}}]}
    - {tool_calls: [{name: book, arguments: {n: 4}}]}
    - {text: Paid.}
`, agents[0], agents[1])
		if _, err := r.c.PutAgent(t.Context(), agents[0], []byte(definition)); err != nil {
			t.Fatal(err)
		}
	}
	one := api.SubmitRequest{Agent: "payer", Input: json.RawMessage(`"Pay."`)}
	batch, err := r.c.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{one, one, one, one}, MaxParallel: 1}, "")
	if err != nil {
		t.Fatal(err)
	}
	chief, err := r.c.Submit(t.Context(), api.SubmitRequest{Agent: "chief", Input: json.RawMessage(`"Pay."`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "the first of the batch and the grandchild make their second call", func() error { return r.effects(4) })
	r.runs = append(batch.RunIDs, chief.ID)
	const below = 2 // the descendants of chief
	r.restore()

	report, err := r.c.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := report.Counts.Active + report.Counts.Ahead; n != len(r.runs)+below || report.Counts.Calls != 2 {
		t.Errorf("report: %+v, want %d runs and the 2 calls in flight: %+v", report.Counts, len(r.runs)+below, report.Runs)
	}
	decided, err := r.c.AbandonRestore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if decided.Cancelled != len(r.runs)+below {
		t.Errorf("%d runs were cancelled, want %d", decided.Cancelled, len(r.runs)+below)
	}
	for _, run := range r.runs {
		if done, err := r.ended(run); err != nil || done.Status != string(state.Cancelled) {
			t.Errorf("run %s: %v %v, want cancelled", run, done.Status, err)
		}
	}
	for what, n := range r.payments.all() {
		if n > 1 {
			t.Errorf("%s: %d times", what, n)
		}
	}
}
