package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// history looks at each of 200 turns of one run: what the first and the last cost on a
// worker that has taken those before, and on one that has not. The floor of the latter
// reads the whole log as well.
func history(ctx context.Context, cfg Config, add func(Row)) error {
	n, runs := 200, 10
	if cfg.Short {
		n, runs = 60, 1
	}
	for _, fresh := range []bool{false, true} {
		g, err := grow(ctx, cfg, n, runs, fresh)
		if err != nil {
			return err
		}
		who := map[bool]string{false: "the same worker", true: "a fresh worker each turn"}[fresh]
		row := func(what, unit, target string, of func(cost) float64) {
			early, late := of(g.early), of(g.late)
			r := Row{
				What: fmt.Sprintf("%s: %s, turns %d–%d over 1–20", who, what, n-19, n), Value: late / early, Unit: "times", Target: target,
				Note: fmt.Sprintf("%s → %s %s", number(early), number(late), unit),
			}
			if early, late := of(g.floorEarly), of(g.floorLate); early > 0 {
				r.Floor, r.Note = late/early, r.Note+fmt.Sprintf(", the floor %s → %s", number(early), number(late))
			}
			add(r)
		}
		row("time a turn", "ms", "≤ 1.1", func(c cost) float64 { return c.ms })
		row("bytes to Redis", "B", "≤ 1.1", func(c cost) float64 { return c.written })
		row("bytes from Redis", "B", "", func(c cost) float64 { return c.read })
	}
	return nil
}

// cost of a turn.
type cost struct{ ms, written, read float64 }

// growth is what a turn costs at the beginning of runs and at their end.
type growth struct{ early, late, floorEarly, floorLate cost }

// grow takes runs of n turns, one after the other.
func grow(ctx context.Context, cfg Config, n, runs int, fresh bool) (g growth, err error) {
	servers, err := startServers(ctx, cfg.Profile)
	if err != nil {
		return g, err
	}
	defer servers.stop()
	defer app.GCHeadroom()() // as every process of Turnpike has
	forget := &forgetful{}
	if fresh {
		// It can hold one log.
		if forget.reader, err = redisstore.Open(ctx, redisstore.Config{URL: servers.redisURL, CacheBytes: 1}); err != nil {
			return g, err
		}
		defer forget.reader.Close() //nolint:errcheck // it has nothing to write
	}
	deployment, err := openWith(ctx, servers, func(s *redisstore.Store) state.Store {
		if forget.Store = s; fresh {
			return forget
		}
		return s
	})
	if err != nil {
		return g, err
	}
	defer deployment.close()
	floor, err := newFloor(ctx, servers)
	if err != nil {
		return g, err
	}
	defer floor.close()
	floor.whole = fresh
	between := func() error { return nil }
	if fresh {
		if between, err = forget.prepare(ctx); err != nil {
			return g, err
		}
	}
	ends := func(costs []cost, firsts, lasts *[]cost) {
		*firsts, *lasts = append(*firsts, costs[:19]...), append(*lasts, costs[len(costs)-19:]...)
	}
	var firsts, lasts, floorFirsts, floorLasts []cost
	for i := range runs + 1 {
		costs, err := deployment.costs(ctx, n, between)
		if err != nil {
			return g, err
		}
		steps, err := floor.steps(ctx, n)
		if err != nil {
			return g, err
		}
		if i > 0 { // the first run warms everything
			ends(costs, &firsts, &lasts)
			var bare []cost
			for _, ms := range steps[1:] {
				bare = append(bare, cost{ms: ms})
			}
			ends(bare, &floorFirsts, &floorLasts)
		}
	}
	return growth{median(firsts), median(lasts), median(floorFirsts), median(floorLasts)}, nil
}

// costs runs one run of n turns and returns what each has cost, from its model call to
// the next one. What the look at the traffic takes is not in it, nor what is done between
// the turns.
func (s *deployment) costs(ctx context.Context, n int, between func() error) ([]cost, error) {
	var costs []cost
	var failed error
	var left time.Time
	var was traffic
	if err := s.prepare(ctx, n, func(state.RunID, int) {
		now := time.Now() // one run: nobody else calls
		is := s.servers.traffic(ctx)
		if !left.IsZero() {
			costs = append(costs, cost{ms(now.Sub(left)), is.in - was.in - is.asked, is.out - was.out - was.answered})
		}
		if err := between(); err != nil {
			failed = err
		}
		was, left = s.servers.traffic(ctx), time.Now()
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
	if failed != nil {
		return nil, failed
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

// forgetful is a store that claims as a worker does which sees the run for the first
// time. It is for one run at a time.
type forgetful struct {
	*redisstore.Store

	reader *redisstore.Store // hears of no commit
}

// Claim claims with the store that hears of no commit.
func (f *forgetful) Claim(ctx context.Context, q state.ClaimRequest) (state.Claim, error) {
	return f.reader.Claim(ctx, q)
}

// prepare returns what makes the reader forget the run it has claimed: it has capacity for
// one, and claims another, always in the same way. The claim is of a worker that is
// there, so nobody takes it up.
func (f *forgetful) prepare(ctx context.Context) (func() error, error) {
	other, err := state.State{ID: "run_00000000000000000000000000", Priority: state.Normal}.Move(state.Submitted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		return nil, err
	}
	if _, err := f.Create(ctx, state.NewRun{State: other, RedeliveryDelay: time.Hour}); err != nil {
		return nil, err
	}
	return func() error {
		c, err := f.reader.Claim(ctx, state.ClaimRequest{Run: other.ID, Version: other.Version, Token: "t", Worker: workerID, Lease: time.Hour, RedeliveryDelay: time.Hour})
		if err == nil && c.Outcome != state.Claimed {
			err = fmt.Errorf("claim the other run: it is %s", c.Outcome)
		}
		return err
	}, nil
}
