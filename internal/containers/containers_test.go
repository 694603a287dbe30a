package containers

import (
	"context"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/client"
)

// lease is the one that workers have by default.
const lease = 25 * time.Second

// I1, I2, I4, I9: containers that lose the network or are restarted one after the
// other lose no run, do nothing twice, and delay no run by more than the lease.
func TestContainers(t *testing.T) {
	if os.Getenv("TURNPIKE_CONTAINERS") == "" {
		t.Skip("needs a Docker engine and the images of deployments/build-images.sh: make containers has both")
	}
	// The test removes what it starts, and the reaper is an image of its own.
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	s := deploy(ctx, t)
	l := &ledger{effects: map[string]int{}}
	tools := l.serve(t, s)
	u := &users{finished: make(chan struct{}, 1<<16)}
	for _, g := range s.gateways {
		u.clients = append(u.clients, client.New("http://"+g.at(7070)))
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
	// The users end before what they use.
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
	s.join(ctx, s.workers[0])
	u.await(ctx, t, 25)

	phase("Redis off the network")
	s.cut(ctx, s.redis)
	pause(ctx, 5*time.Second)
	s.join(ctx, s.redis)
	s.allReady(ctx)
	u.await(ctx, t, 50)

	phase("a NATS server off the network")
	leader := s.leader(ctx, tools)
	s.cut(ctx, leader)
	u.await(ctx, t, 100)
	s.join(ctx, leader)
	s.allReady(ctx)
	u.await(ctx, t, 25)

	for _, v := range s.services() {
		phase("restart of " + v.name)
		s.restart(ctx, v)
		s.allReady(ctx)
		u.await(ctx, t, 10)
	}
	phase("end")
	finish()
	<-rest
	check(ctx, t, u, l)
}

// leader is the NATS server that leads the stream of turns.
func (s *site) leader(ctx context.Context, nc *nats.Conn) *service {
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

// check compares what the users saw and the tools did with what the gateways say.
func check(ctx context.Context, t *testing.T, u *users, l *ledger) {
	t.Helper()
	for _, err := range u.wrong {
		t.Error(err)
	}
	c := u.clients[0]
	delays := map[string][]time.Duration{}
	var phases []string
	unknown, again := 0, 0
	for _, f := range u.runs {
		run, err := c.Get(ctx, f.id)
		if err != nil {
			t.Errorf("run %s: %v", f.id, err)
			continue
		}
		if run.Status != "completed" {
			t.Errorf("run %s is %s: %v %v", f.id, run.Status, run.Reason, run.Error)
			continue
		}
		turns, err := c.Turns(ctx, f.id)
		if err != nil {
			t.Errorf("turns of %s: %v", f.id, err)
		}
		for _, row := range turns {
			for _, call := range row.ToolCalls {
				n := l.effects[f.id+" "+call.ID]
				switch {
				case call.IsError:
					unknown++
				case n == 0:
					t.Errorf("run %s: call %s of %s has a result, and the tool was not called", f.id, call.ID, call.Name)
				}
				if n > 1 {
					again++
				}
				if n > 1 && call.Name == "pay" {
					t.Errorf("run %s: call %s paid %d times", f.id, call.ID, n)
				}
			}
		}
		for i, seq := range f.seen {
			if seq != int64(i+1) {
				t.Errorf("run %s: its reader saw events %v", f.id, f.seen)
				break
			}
		}
		if len(f.seen) == 0 {
			t.Errorf("run %s: its reader saw nothing", f.id)
		}
		if !slices.Contains(phases, f.phase) {
			phases = append(phases, f.phase)
		}
		delay := run.FinishedAt.Sub(run.CreatedAt.Time) - work
		delays[f.phase] = append(delays[f.phase], delay)
		if delay > lease {
			t.Errorf("run %s (%s) was delayed by %s", f.id, f.phase, delay)
		}
	}
	if n := count(ctx, t, c); n != len(u.runs) {
		t.Errorf("%d runs were accepted, the site has %d", len(u.runs), n)
	}
	if dead, err := c.Dead(ctx, 0, 10); err != nil || len(dead.Items) > 0 {
		t.Errorf("dead letters: %v %v", dead.Items, err)
	}
	t.Logf("%d runs, %d calls with an error, %d calls that may be repeated were", len(u.runs), unknown, again)
	for _, p := range phases {
		d := delays[p]
		slices.Sort(d)
		t.Logf("%-32s %4d runs, delayed by %5.2f s in the median, %5.2f s at most", p, len(d), d[len(d)/2].Seconds(), d[len(d)-1].Seconds())
	}
}

// count counts the runs that the site knows.
func count(ctx context.Context, t *testing.T, c *client.Client) int {
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
