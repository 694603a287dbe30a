package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// history looks at each of 200 turns of one run: what the first and the last cost on a
// worker that has taken those before, and on one that has not.
func history(ctx context.Context, cfg Config, add func(Row)) error {
	n, runs := 200, 10
	if cfg.Short {
		n, runs = 60, 1
	}
	for _, fresh := range []bool{false, true} {
		early, late, err := growth(ctx, cfg, n, runs, fresh)
		if err != nil {
			return err
		}
		who := map[bool]string{false: "the same worker", true: "a fresh worker each turn"}[fresh]
		row := func(what, unit string, early, late float64, target string) {
			add(Row{
				What: fmt.Sprintf("%s: %s, turns %d–%d over 1–20", who, what, n-19, n), Value: late / early, Unit: "times", Target: target,
				Note: fmt.Sprintf("%s → %s %s", number(early), number(late), unit),
			})
		}
		row("time a turn", "ms", early.ms, late.ms, "≤ 1.1")
		row("bytes to Redis", "B", early.written, late.written, "≤ 1.1")
		row("bytes from Redis", "B", early.read, late.read, "")
	}
	return nil
}

// cost of a turn.
type cost struct{ ms, written, read float64 }

// growth returns what a turn costs at the beginning of runs of n turns and at their end,
// one run after the other.
func growth(ctx context.Context, cfg Config, n, runs int, fresh bool) (early, late cost, err error) {
	servers, err := startServers(ctx, cfg.Profile)
	if err != nil {
		return early, late, err
	}
	defer servers.stop()
	var forget *forgetful
	site, err := openWith(ctx, servers, func(s *redisstore.Store) state.Store {
		if !fresh {
			return s
		}
		forget = newForgetful(ctx, s, servers.redisURL)
		return forget
	})
	if err != nil {
		return early, late, err
	}
	defer site.close()
	if forget != nil {
		defer forget.close()
	}
	var firsts, lasts []cost
	for i := range runs + 1 {
		costs, err := site.costs(ctx, n)
		if err != nil {
			return early, late, err
		}
		if i > 0 { // the first run warms everything
			firsts, lasts = append(firsts, costs[:19]...), append(lasts, costs[len(costs)-19:]...)
		}
	}
	return median(firsts), median(lasts), nil
}

// costs runs one run of n turns and returns what each has cost, from its model call to
// the next one. What the look at the traffic takes is not in it.
func (s *site) costs(ctx context.Context, n int) ([]cost, error) {
	var costs []cost
	var left time.Time
	var was traffic
	if err := s.prepare(ctx, n, func(state.RunID, int) {
		now := time.Now() // one run: nobody else calls
		is := s.servers.traffic(ctx)
		if !left.IsZero() {
			costs = append(costs, cost{ms(now.Sub(left)), is.in - was.in - is.asked, is.out - was.out - was.answered})
		}
		was, left = is, time.Now()
	}); err != nil {
		return nil, err
	}
	run, err := s.client.Submit(ctx, request(agentName), "")
	if err != nil {
		return nil, err
	}
	if err := until(ctx, "the run has ended", func() (bool, error) {
		if err := pause(ctx, 50*time.Millisecond); err != nil { // the question is in the traffic
			return false, err
		}
		got, err := s.client.Get(ctx, run.ID)
		return got.Terminal(), err
	}); err != nil {
		return nil, err
	}
	if len(costs) < n-1 {
		return nil, fmt.Errorf("the run made %d turns only", len(costs)+1)
	}
	return costs, nil
}

func median(all []cost) cost {
	pick := func(of func(cost) float64) float64 {
		v := make([]float64, len(all))
		for i, c := range all {
			v[i] = of(c)
		}
		return latency(v).P50
	}
	return cost{pick(func(c cost) float64 { return c.ms }), pick(func(c cost) float64 { return c.written }), pick(func(c cost) float64 { return c.read })}
}

// traffic is what Redis was sent and has sent so far, in bytes, and what the question
// for it took: of the traffic it is asked first and answered after.
type traffic struct{ in, out, asked, answered float64 }

func (s *servers) traffic(ctx context.Context) (t traffic) {
	text, err := s.rdb.Info(ctx, "stats").Result()
	if err != nil {
		return t
	}
	t.asked = float64(len("*2\r\n$4\r\ninfo\r\n$5\r\nstats\r\n"))
	t.answered = float64(len(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)))
	for line := range strings.SplitSeq(text, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "total_net_input_bytes":
			t.in, _ = strconv.ParseFloat(value, 64)
		case "total_net_output_bytes":
			t.out, _ = strconv.ParseFloat(value, 64)
		}
	}
	return t
}

// forgetful is a store that knows nothing of any log whenever a turn is claimed, like
// that of a worker which sees the run for the first time. It is for one run at a time.
type forgetful struct {
	*redisstore.Store

	url    string
	spare  chan *redisstore.Store // the next one, connected
	now    atomic.Pointer[redisstore.Store]
	opened sync.WaitGroup
}

func newForgetful(ctx context.Context, s *redisstore.Store, url string) *forgetful {
	f := &forgetful{Store: s, url: url, spare: make(chan *redisstore.Store, 1)}
	f.opened.Go(func() { f.open(ctx) })
	return f
}

func (f *forgetful) open(ctx context.Context) {
	next, err := redisstore.Open(ctx, redisstore.Config{URL: f.url})
	if err != nil {
		next = f.Store // the URL was good for this one
	} else {
		_ = next.Ready(ctx) // connects
	}
	f.spare <- next
}

func (f *forgetful) close() {
	f.opened.Wait()
	for _, s := range []*redisstore.Store{<-f.spare, f.now.Load()} {
		if s != nil {
			_ = s.Close()
		}
	}
}

// Claim claims with the next store.
func (f *forgetful) Claim(ctx context.Context, q state.ClaimRequest) (state.Claim, error) {
	next := <-f.spare
	if last := f.now.Swap(next); last != nil {
		_ = last.Close()
	}
	f.opened.Go(func() { f.open(context.WithoutCancel(ctx)) })
	return next.Claim(ctx, q)
}

// Record records with the store that has claimed.
func (f *forgetful) Record(ctx context.Context, l state.Lease, r state.Record) error {
	return f.now.Load().Record(ctx, l, r)
}

// Commit commits with the store that has claimed.
func (f *forgetful) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	return f.now.Load().Commit(ctx, l, c)
}
