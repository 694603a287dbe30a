package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

// largeFleet is the number of workers that the figures of a smaller fleet are extrapolated to.
const largeFleet = 200

// fleetLoad is what the servers have done for a fleet, since their start or in a second.
type fleetLoad struct {
	commands                 float64 // of Redis
	in, out                  float64 // messages to and from NATS
	heartbeats, pulls, other float64 // messages to NATS: heartbeats, requests for messages, other requests to JetStream
	redis, nats, workers     float64 // seconds of processor time

	redisConns, natsConns float64 // open now
}

// fleet measures workers without work: what they cost the servers in a second, and what the death of one costs. It
// measures without workers, with half of them and with all, and extrapolates from the last two.
func fleet(ctx context.Context, t *trial) error {
	streams, settle, window := 64, 20*time.Second, 20*time.Second
	if t.cfg.Short {
		streams, settle, window = 4, time.Second, 2*time.Second
	}
	// The slots of a large fleet need no higher limits of the consumers, which workers would raise during the measurement.
	env := []string{fmt.Sprintf("TURNPIKE_TURN_STREAMS=%d", streams), "TURNPIKE_SLOTS=200"}
	if err := t.deploy(ctx, rig.Config{Workers: -1, Env: env}); err != nil {
		return err
	}
	var counts fleetCounts
	var loads []fleetLoad // in a second: without workers, with half of them, with all
	for _, n := range []int{0, t.n / 2, t.n} {
		for n > len(t.Workers) { // the start of a worker costs more than it does later
			if err := t.StartWorkers(ctx, min(4, n-len(t.Workers))); err != nil {
				return err
			}
		}
		rig.Pause(ctx, settle)
		load, err := t.fleetLoad(ctx, &counts, window)
		if err != nil {
			return err
		}
		load = load.times(1 / window.Seconds())
		loads = append(loads, load)
		t.fleetFigures(fmt.Sprintf("%d workers", n), load, n, loads[0])
	}
	if t.n < largeFleet {
		t.predict(loads[1], loads[2], t.n)
	}
	return t.fleetDeath(ctx, &counts, loads[2])
}

// fleetFigures records what a fleet of n workers costs in a second; none is the load without workers.
func (t *trial) fleetFigures(name string, l fleetLoad, n int, none fleetLoad) {
	redis, nats := 0.0, 0.0
	if n == largeFleet {
		redis, nats = 10, 20
	}
	for _, f := range []Figure{
		{Name: "commands to Redis", Value: l.commands, Unit: "/s"},
		{Name: "processor time of Redis", Value: 100 * l.redis, Unit: "%", Most: redis},
		{Name: "messages to NATS", Value: l.in, Unit: "/s"},
		{Name: "of them heartbeats", Value: l.heartbeats, Unit: "/s"},
		{Name: "of them requests for messages", Value: l.pulls, Unit: "/s"},
		{Name: "of them other requests to JetStream", Value: l.other, Unit: "/s"},
		{Name: "messages from NATS", Value: l.out, Unit: "/s"},
		{Name: "processor time of NATS", Value: 100 * l.nats, Unit: "%", Most: nats},
	} {
		f.Name = name + ": " + f.Name
		t.figure(f)
	}
	if n == 0 {
		return
	}
	for _, f := range []Figure{
		{Name: "processor time of a worker", Value: 100 * l.workers / float64(n), Unit: "%"},
		{Name: "connections of a worker to Redis", Value: (l.redisConns - none.redisConns) / float64(n)},
		{Name: "connections of a worker to NATS", Value: (l.natsConns - none.natsConns) / float64(n)},
	} {
		f.Name = name + ": " + f.Name
		t.figure(f)
	}
}

// predict extrapolates the load of two sizes to a large fleet, as a line: in a fleet of more than 20 workers no part of
// the load grows with the square of their number.
func (t *trial) predict(less, more fleetLoad, n int) {
	at := func(of func(fleetLoad) float64) float64 {
		return of(more) + (of(more)-of(less))*float64(largeFleet-n)/float64(n-n/2)
	}
	t.fleetFigures(fmt.Sprintf("%d workers, extrapolated", largeFleet), fleetLoad{
		commands:   at(func(l fleetLoad) float64 { return l.commands }),
		in:         at(func(l fleetLoad) float64 { return l.in }),
		out:        at(func(l fleetLoad) float64 { return l.out }),
		heartbeats: at(func(l fleetLoad) float64 { return l.heartbeats }),
		pulls:      at(func(l fleetLoad) float64 { return l.pulls }),
		other:      at(func(l fleetLoad) float64 { return l.other }),
		redis:      at(func(l fleetLoad) float64 { return l.redis }),
		nats:       at(func(l fleetLoad) float64 { return l.nats }),
		workers:    at(func(l fleetLoad) float64 { return l.workers }),
		redisConns: at(func(l fleetLoad) float64 { return l.redisConns }),
		natsConns:  at(func(l fleetLoad) float64 { return l.natsConns }),
	}, largeFleet, fleetLoad{})
}

// fleetDeath kills a worker, and records what the others do about it in addition to what they do anyway: idle is
// the load in a second.
func (t *trial) fleetDeath(ctx context.Context, counts *fleetCounts, idle fleetLoad) error {
	const within = 6 * time.Second
	victim := t.Workers[len(t.Workers)-1]
	go victim.Kill(patience)
	death, err := t.fleetLoad(ctx, counts, within)
	if err != nil {
		return err
	}
	usual := idle.times(within.Seconds())
	t.figure(Figure{Name: "a worker is killed: further commands to Redis", Value: death.commands - usual.commands})
	t.figure(Figure{Name: "a worker is killed: further processor time of Redis", Value: 1000 * (death.redis - usual.redis), Unit: "ms"})
	t.figure(Figure{Name: "a worker is killed: further messages to NATS", Value: death.in - usual.in})
	t.figure(Figure{Name: "a worker is killed: further messages from NATS", Value: death.out - usual.out})
	return nil
}

// fleetLoad returns what happens during a window.
func (t *trial) fleetLoad(ctx context.Context, counts *fleetCounts, window time.Duration) (l fleetLoad, err error) {
	stop, err := counts.listen(t.Conn)
	if err != nil {
		return l, err
	}
	before, err := t.fleetTotals(ctx, counts)
	if err != nil {
		return l, err
	}
	rig.Pause(ctx, window)
	after, err := t.fleetTotals(ctx, counts)
	stop()
	return after.since(before), err
}

// fleetCounts counts messages of some kinds to NATS.
type fleetCounts struct{ heartbeats, pulls, other atomic.Int64 }

// listen counts until stop is called.
func (c *fleetCounts) listen(nc *nats.Conn) (stop func(), err error) {
	var subs []*nats.Subscription
	stop = func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe() // the connection closes soon
		}
	}
	for subject, count := range map[string]func(*nats.Msg){
		rig.Prefix + ".presence.*": func(*nats.Msg) { c.heartbeats.Add(1) },
		"$JS.API.>": func(m *nats.Msg) {
			if strings.HasPrefix(m.Subject, "$JS.API.CONSUMER.MSG.NEXT.") {
				c.pulls.Add(1)
			} else {
				c.other.Add(1)
			}
		},
	} {
		sub, err := nc.Subscribe(subject, count)
		if err != nil {
			stop()
			return nil, err
		}
		subs = append(subs, sub)
	}
	return stop, nc.Flush()
}

// fleetTotals returns what the servers and the workers have done since their start.
func (t *trial) fleetTotals(ctx context.Context, counts *fleetCounts) (l fleetLoad, err error) {
	l.heartbeats, l.pulls, l.other = float64(counts.heartbeats.Load()), float64(counts.pulls.Load()), float64(counts.other.Load())
	used := t.used()
	l.redis, l.nats, l.workers = used.redis.Seconds(), used.nats.Seconds(), used.workers.Seconds()
	if t.Redis != nil {
		if l.commands, l.redisConns, err = redisTotals(ctx, t.Redis.Client); err != nil {
			return l, err
		}
	}
	var server struct {
		In          float64 `json:"in_msgs"`
		Out         float64 `json:"out_msgs"`
		Connections float64 `json:"connections"`
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.NATS.Monitor+"/varz", http.NoBody)
	if err != nil {
		return l, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return l, fmt.Errorf("ask the monitor of NATS: %w", err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&server); err != nil {
		return l, fmt.Errorf("read the answer of the monitor of NATS: %w", err)
	}
	l.in, l.out, l.natsConns = server.In, server.Out, server.Connections
	return l, nil
}

// redisTotals returns the number of commands since the start of Redis, and that of the open connections.
func redisTotals(ctx context.Context, c *redis.Client) (commands, conns float64, err error) {
	text, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("ask Redis: %w", err)
	}
	for line := range strings.Lines(text) {
		var calls float64
		if _, stats, ok := strings.Cut(line, ":calls="); ok {
			if _, err := fmt.Sscanf(stats, "%f,", &calls); err != nil {
				return 0, 0, fmt.Errorf("read the INFO of Redis: %w", err)
			}
			commands += calls
		}
	}
	clients, err := c.Info(ctx, "clients").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("ask Redis: %w", err)
	}
	_, rest, _ := strings.Cut(clients, "connected_clients:")
	if _, err := fmt.Sscan(rest, &conns); err != nil {
		return 0, 0, fmt.Errorf("read the INFO of Redis: %w", err)
	}
	return commands, conns, nil
}

func (l fleetLoad) times(f float64) fleetLoad {
	return fleetLoad{
		l.commands * f, l.in * f, l.out * f, l.heartbeats * f, l.pulls * f, l.other * f, l.redis * f, l.nats * f, l.workers * f, l.redisConns, l.natsConns,
	}
}

// since returns the load since an earlier one; the connections stay those of l.
func (l fleetLoad) since(b fleetLoad) fleetLoad {
	return fleetLoad{
		l.commands - b.commands, l.in - b.in, l.out - b.out, l.heartbeats - b.heartbeats, l.pulls - b.pulls, l.other - b.other,
		l.redis - b.redis, l.nats - b.nats, l.workers - b.workers, l.redisConns, l.natsConns,
	}
}
