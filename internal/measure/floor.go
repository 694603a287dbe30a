package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

// floor is the baseline of the measurements: the least work that a run needs, on the servers of the
// deployment and with its own worker process. Each turn takes one JetStream message, reads the whole
// conversation and makes two conditional writes to Redis; the last turn makes one. There is no gateway and no
// policy.
type floor struct {
	rdb    *redis.Client
	nc     *nats.Conn
	js     jetstream.JetStream
	worker *rig.Process
	steps  string // file
	sent   int
}

var (
	floorStart = redis.NewScript(`if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'v', 0, 'p', 0, 'st', 'running'); redis.call('RPUSH', KEYS[2], ARGV[1]); return 1`)
	floorJournal = redis.NewScript(`local h = redis.call('HMGET', KEYS[1], 'v', 'p', 'st')
if h[1] ~= ARGV[1] or h[2] ~= '0' or h[3] ~= 'running' then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[2]); redis.call('HSET', KEYS[1], 'p', 1); return 1`)
	floorCommit = redis.NewScript(`local h = redis.call('HMGET', KEYS[1], 'v', 'st')
if h[1] ~= ARGV[1] or h[2] ~= 'running' then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[2]); redis.call('HSET', KEYS[1], 'v', ARGV[1] + 1, 'p', 0, 'st', ARGV[3]); return 1`)
)

// floorKeys are the keys of a run: its header and its conversation.
func floorKeys(run string) []string {
	return []string{"floor:{" + run + "}:h", "floor:{" + run + "}:m"}
}

const floorStream, floorEnded, floorCancel = "FLOOR", "floor.ended.", "floor.cancel."

func openFloor(natsURL, redisAddr string) (*floor, error) {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	return &floor{rdb: redis.NewClient(&redis.Options{Addr: redisAddr, PoolSize: 68}), nc: nc, js: js}, err
}

// startFloor starts the floor of the deployment. With checkpoints in JetStream the floor does nothing, and
// none reports true.
func (t *trial) startFloor(ctx context.Context) (*floor, error) {
	if t.Redis == nil {
		return &floor{}, nil
	}
	f, err := openFloor("nats://"+t.NATS.Addr, t.Redis.Addr)
	if err != nil {
		return nil, err
	}
	f.steps = filepath.Join(t.dir, "floor.steps")
	stream, err := f.js.CreateStream(ctx, jetstream.StreamConfig{Name: floorStream, Subjects: []string{"floor.turn.>"}, Retention: jetstream.WorkQueuePolicy})
	if err != nil {
		return nil, err
	}
	if _, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000}); err != nil {
		return nil, err
	}
	f.worker = t.Start(ctx, "floor", "floor", "FLOOR_NATS=nats://"+t.NATS.Addr, "FLOOR_REDIS="+t.Redis.Addr, stepsVariable+"="+f.steps)
	t.floor = f
	return f, nil
}

func (f *floor) close() {
	f.nc.Close()
	_ = f.rdb.Close()
}

// none reports whether the deployment lacks a floor.
func (f *floor) none() bool { return f.rdb == nil }

// submit submits a run of some turns, each with a model call of that length, and returns its id.
func (f *floor) submit(ctx context.Context, turns int, call time.Duration) (string, error) {
	f.sent++
	return f.submitAs(ctx, fmt.Sprint("f", f.sent), turns, call)
}

func (f *floor) submitAs(ctx context.Context, run string, turns int, call time.Duration) (string, error) {
	if err := floorStart.Run(ctx, f.rdb, floorKeys(run), `"go"`).Err(); err != nil {
		return "", err
	}
	return run, f.publish(ctx, run, 0, turns, call)
}

func (f *floor) publish(ctx context.Context, run string, turn, turns int, call time.Duration) error {
	_, err := f.js.Publish(ctx, "floor.turn."+run, fmt.Appendf(nil, "%s %d %d %d", run, turn, turns, call), jetstream.WithMsgID(fmt.Sprint(run, ":", turn)))
	return err
}

// runs submits n runs at once and returns when all have ended.
func (f *floor) runs(ctx context.Context, n, turns int) error {
	ended := make(chan *nats.Msg, n)
	sub, err := f.nc.ChanSubscribe(floorEnded+"*", ended)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for range n {
		f.sent++
		run := fmt.Sprint("f", f.sent)
		group.Go(func() error { _, err := f.submitAs(groupCtx, run, turns, 0); return err })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for range n {
		select {
		case <-ended:
		case <-time.After(patience):
			return fmt.Errorf("a run of the baseline has not ended within %s: find the cause in floor.log, and retry", patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// serveFloor is the worker of the floor.
func serveFloor(ctx context.Context) error {
	f, err := openFloor(os.Getenv("FLOOR_NATS"), os.Getenv("FLOOR_REDIS"))
	if err != nil {
		return err
	}
	defer f.close()
	log := openSteps("floor")
	var running sync.Map // cancel functions, by run
	if _, err := f.nc.Subscribe(floorCancel+"*", func(m *nats.Msg) {
		if cancel, ok := running.Load(strings.TrimPrefix(m.Subject, floorCancel)); ok {
			cancel.(context.CancelFunc)() //nolint:forcetypeassert,revive // nothing else is in it
		}
	}); err != nil {
		return err
	}
	consumer, err := f.js.Consumer(ctx, floorStream, "w")
	if err != nil {
		return err
	}
	slots := make(chan struct{}, 1000)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			var run string
			var turn, turns int
			var call time.Duration
			if _, err := fmt.Sscan(string(m.Data()), &run, &turn, &turns, &call); err != nil {
				return
			}
			called, cancel := context.WithCancel(ctx)
			defer cancel()
			running.Store(run, cancel)
			defer running.Delete(run)
			if err := f.turn(ctx, called, log, run, turn, turns, call); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			_ = m.Ack() // it is redelivered then
		}()
	}, jetstream.PullMaxMessages(500))
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	return nil
}

// turn executes one turn: it reads the conversation, journals the model's response, commits the tool's result,
// and publishes the next turn or the end of the run. It ends a run whose call is cancelled.
func (f *floor) turn(ctx, called context.Context, log *stepLog, run string, turn, turns int, call time.Duration) error {
	keys, version := floorKeys(run), strconv.Itoa(turn)
	read := f.rdb.Pipeline()
	header, conversation := read.HMGet(ctx, keys[0], "v", "p", "st"), read.LRange(ctx, keys[1], 0, -1)
	if _, err := read.Exec(ctx); err != nil {
		return err
	}
	if got := len(conversation.Val()); header.Val()[0] != version || got != 1+2*turn {
		return fmt.Errorf("turn %d of the baseline's run %s found %d messages and version %v in Redis, which another program may have changed: benchmark with a Redis of its own", turn, run, got, header.Val()[0])
	}
	if call > 0 {
		f.rdb.HSet(ctx, keys[0], "c", 1) // the call is about to start
	}
	status := "running"
	if turn == turns-1 {
		status = "completed"
	}
	if !pause(called, call) && ctx.Err() == nil {
		status = "cancelled"
		log.note(run)
	}
	if status == "running" {
		if err := floorJournal.Run(ctx, f.rdb, keys, version, arguments).Err(); err != nil {
			return err
		}
		log.note(run)
	}
	if err := floorCommit.Run(ctx, f.rdb, keys, version, toolText, status).Err(); err != nil {
		return err
	}
	if status == "running" {
		return f.publish(ctx, run, turn+1, turns, call)
	}
	return f.nc.Publish(floorEnded+run, nil)
}
