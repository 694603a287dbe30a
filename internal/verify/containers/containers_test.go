//go:build containers

package containers

import (
	"context"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lease is the workers' default lease. The faults of one run add up to less: the election of a leader, a sweep,
// and two lost calls of 5 s.
const lease = 25 * time.Second

// Containers that lose the network or are restarted in turn lose no run, do nothing twice, and delay no run by
// more than the lease (I1, I2, I4, I9).
func TestContainers(t *testing.T) {
	// The test removes what it starts; the reaper would be an extra image.
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	s := deploy(ctx, t)
	l := &ledger{effects: map[string]int{}}
	tools := l.serve(t, s)
	u := &users{finished: make(chan struct{}, 1<<16)}
	for _, g := range s.gateways {
		u.clients = append(u.clients, api.New("http://"+g.at(7070)))
	}
	if _, err := u.clients[0].PutAgent(ctx, "payer", []byte(definition)); err != nil {
		t.Fatal(err)
	}

	stop, finish := context.WithCancel(ctx)
	rest := make(chan struct{})
	u.enter("undisturbed")
	go func() {
		defer close(rest)
		u.run(ctx, stop, 12)
	}()
	// The users end before the services they use.
	defer func() {
		finish()
		cancel()
		<-rest
	}()
	u.await(ctx, t, 50)

	began := time.Now()
	phase := func(name string) {
		t.Logf("%5.1f s: %s", time.Since(began).Seconds(), name)
		u.enter(name)
	}
	phase("a worker off the network")
	s.cut(ctx, s.workers[0])
	u.await(ctx, t, 100)
	u.awaitAll(ctx, t)
	s.join(ctx, s.workers[0])
	u.awaitAll(ctx, t)

	phase("Redis off the network")
	s.cut(ctx, s.redis)
	pause(ctx, 5*time.Second)
	s.join(ctx, s.redis)
	s.allReady(ctx)
	u.await(ctx, t, 20)
	u.awaitAll(ctx, t)

	phase("a NATS server off the network")
	leader := s.leader(ctx, tools)
	s.cut(ctx, leader)
	u.await(ctx, t, 100)
	u.awaitAll(ctx, t)
	s.join(ctx, leader)
	s.allReady(ctx)
	u.awaitAll(ctx, t)

	for _, v := range s.services() {
		phase("restart of " + v.name)
		s.restart(ctx, v)
		s.allReady(ctx)
		u.awaitAll(ctx, t)
	}
	phase("end")
	finish()
	<-rest
	check(ctx, t, u, l)
	if t.Failed() {
		t.Logf("the logs of the containers are in %s", logs)
	}
}

// leader returns the NATS server that leads the stream of turns.
func (s *deployment) leader(ctx context.Context, nc *nats.Conn) *service {
	s.t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "TURNPIKE_TURNS")
	if err != nil {
		s.t.Fatal(err)
	}
	name := stream.CachedInfo().Cluster.Leader
	i := slices.IndexFunc(s.nats, func(v *service) bool { return v.name == name })
	if i < 0 {
		s.t.Fatalf("the leader of the stream of turns is %q", name)
	}
	return s.nats[i]
}

// check compares the observations of users and tools with the gateways' data.
func check(ctx context.Context, t *testing.T, u *users, l *ledger) {
	t.Helper()
	for _, err := range u.wrong {
		t.Error(err)
	}
	f := figures{phases: map[string]*delays{}}
	for _, r := range u.runs {
		f.checkRun(ctx, t, u.clients[0], r, l)
	}
	if n := count(ctx, t, u.clients[0]); n != len(u.runs) {
		t.Errorf("%d runs were accepted, the deployment has %d", len(u.runs), n)
	}
	if dead, err := u.clients[0].Dead(ctx, 0, 10); err != nil || len(dead.Items) > 0 {
		t.Errorf("dead letters: %v %v", dead.Items, err)
	}
	f.report(t, len(u.runs))
}

// figures are the measurements of the test.
type figures struct {
	order   []string
	phases  map[string]*delays
	unknown int // calls of unknown outcome, according to the model's input
	again   int // repeated effects of calls that may be repeated
}

// delays are the delays of runs submitted in a phase, beyond their work.
type delays struct{ runs, readers []time.Duration }

func (f *figures) checkRun(ctx context.Context, t *testing.T, c *api.Client, r *followed, l *ledger) {
	t.Helper()
	run, err := c.Get(ctx, r.id)
	if err != nil {
		t.Errorf("run %s: %v", r.id, err)
		return
	}
	if run.Status != string(state.Completed) {
		t.Errorf("run %s is %s: %v %v", r.id, run.Status, run.Reason, run.Error)
		return
	}
	turns, err := c.Turns(ctx, r.id)
	if err != nil {
		t.Errorf("turns of %s: %v", r.id, err)
	}
	for _, row := range turns {
		for _, call := range row.ToolCalls {
			n := l.effects[r.id+" "+call.ID]
			switch {
			case call.Name == "pay" && n > 1:
				t.Errorf("run %s paid %d times for call %s", r.id, n, call.ID)
			case n == 0 && !call.IsError:
				t.Errorf("run %s: call %s of %s has a result although the tool was not called", r.id, call.ID, call.Name)
			}
			f.again += max(0, n-1)
			if call.IsError {
				f.unknown++
			}
		}
	}
	for i, e := range r.seen {
		if e.Seq != int64(i+1) {
			t.Errorf("run %s: event %d arrived as number %d", r.id, e.Seq, i+1)
			break
		}
	}
	if len(r.seen) == 0 || r.seen[len(r.seen)-1].Type != state.EntryFinished {
		t.Errorf("run %s: its reader saw %d events and no end", r.id, len(r.seen))
	}
	d := f.phases[r.phase]
	if d == nil {
		d = &delays{}
		f.phases[r.phase], f.order = d, append(f.order, r.phase)
	}
	delayed, seen := run.FinishedAt.Sub(run.CreatedAt.Time)-work, r.at.Sub(run.CreatedAt.Time)-work
	d.runs, d.readers = append(d.runs, delayed), append(d.readers, seen)
	if delayed > lease || seen > lease {
		t.Errorf("run %s (%s) was delayed by %s, its reader by %s:%s", r.id, r.phase, delayed, seen, r.steps())
	}
}

// report logs the delays of each phase.
func (f *figures) report(t *testing.T, runs int) {
	t.Helper()
	t.Logf("%d runs; %d calls of unknown outcome; %d repeated calls that may be repeated", runs, f.unknown, f.again)
	for _, p := range f.order {
		d := f.phases[p]
		slices.Sort(d.runs)
		slices.Sort(d.readers)
		t.Logf("%-30s %4d runs, delayed by %5.2f s in the median and %5.2f s at most, their readers by %5.2f s at most",
			p, len(d.runs), d.runs[len(d.runs)/2].Seconds(), d.runs[len(d.runs)-1].Seconds(), d.readers[len(d.readers)-1].Seconds())
	}
}

// count returns the number of runs in the deployment.
func count(ctx context.Context, t *testing.T, c *api.Client) int {
	t.Helper()
	n := 0
	for q := (url.Values{"agent": {"payer"}}); ; {
		page, err := c.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Items)
		if page.NextCursor == nil {
			return n
		}
		q.Set("cursor", *page.NextCursor)
	}
}
