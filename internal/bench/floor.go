package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
)

// floor does what a turn does to the servers, and nothing else: three scripts of
// the sizes of claim, record and commit, three events, the next turn, and its ack.
type floor struct {
	servers *servers
	rdb     *redis.Client
	nc      *nats.Conn
	js      jetstream.JetStream
	queue   jetstream.MessagesContext
	whole   bool // read the whole log at each claim, as who knows nothing of it must
}

var (
	floorClaim = redis.NewScript(`local h = redis.call('HMGET', KEYS[1], 'st', 'ver', 'h')
redis.call('HSET', KEYS[1], 'st', 'r', 'tok', ARGV[1], 'lease', ARGV[2]); redis.call('ZADD', KEYS[3], ARGV[2], KEYS[1])
return {h, redis.call('LRANGE', KEYS[2], -3, -1)}`)
	floorRecord = redis.NewScript(`redis.call('HGET', KEYS[1], 'tok'); return redis.call('RPUSH', KEYS[2], ARGV[1])`)
	floorCommit = redis.NewScript(`redis.call('HGET', KEYS[1], 'tok'); redis.call('RPUSH', KEYS[2], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[1], 'st', 'q', 'ver', ARGV[4], 'h', ARGV[1], 'tok', ''); redis.call('ZADD', KEYS[3], ARGV[4], KEYS[1]); return 1`)

	floorHeader = strings.Repeat("h", 900)
	floorEntry  = strings.Repeat("e", 650)
)

func newFloor(ctx context.Context, s *servers) (*floor, error) {
	opts, err := redis.ParseURL(s.redisURL)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(s.natsURL)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	f := &floor{servers: s, rdb: redis.NewClient(opts), nc: nc, js: js}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "FLOOR_TURNS", Subjects: []string{"floor.turn.>"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
	}); err != nil {
		return nil, err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "FLOOR_EVENTS", Subjects: []string{"floor.events.>"}}); err != nil {
		return nil, err
	}
	c, err := js.CreateConsumer(ctx, "FLOOR_TURNS", jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 50_000})
	if err != nil {
		return nil, err
	}
	f.queue, err = c.Messages(jetstream.PullMaxMessages(100))
	return f, err
}

func (f *floor) close() {
	f.queue.Stop()
	f.nc.Close()
	_ = f.rdb.Close()
}

func (f *floor) publish(ctx context.Context, run string, turn int) error {
	_, err := f.js.Publish(ctx, "floor.turn."+run, []byte(fmt.Sprintf(`{"run_id":%q,"version":%d}`, run, turn)), jetstream.WithMsgID(fmt.Sprintf("%s:%d", run, turn)))
	return err
}

// turn is the operations of one turn.
func (f *floor) turn(ctx context.Context, run string, turn, turns int) error {
	keys := []string{"{f}:run:" + run, "{f}:log:" + run, "{f}:due"}
	if err := floorClaim.Run(ctx, f.rdb, keys, "token", turn).Err(); err != nil {
		return err
	}
	if f.whole {
		if err := f.rdb.LRange(ctx, keys[1], 0, -1).Err(); err != nil {
			return err
		}
	}
	if turn < turns-1 {
		if err := floorRecord.Run(ctx, f.rdb, keys, floorEntry).Err(); err != nil {
			return err
		}
	}
	if err := floorCommit.Run(ctx, f.rdb, keys, floorHeader, floorEntry, floorEntry, turn).Err(); err != nil {
		return err
	}
	var acks []jetstream.PubAckFuture
	for i := range 3 {
		a, err := f.js.PublishAsync("floor.events."+run, []byte(floorEntry), jetstream.WithMsgID(fmt.Sprintf("e:%s:%d:%d", run, turn, i)))
		if err != nil {
			return err
		}
		acks = append(acks, a)
	}
	if turn < turns-1 {
		if err := f.publish(ctx, run, turn+1); err != nil {
			return err
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		}
	}
	return nil
}

// drive runs the turns of the runs that were published, as a worker would.
func (f *floor) drive(ctx context.Context, prefix string, runs, turns int, each func()) error {
	for i := range runs {
		if err := f.publish(ctx, fmt.Sprintf("%s-%d", prefix, i), 0); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range runs * turns {
		m, err := f.queue.Next()
		if err != nil {
			return err
		}
		wg.Go(func() {
			var turn int
			run := strings.TrimPrefix(m.Subject(), "floor.turn.")
			_, err := fmt.Sscanf(string(m.Data()), `{"run_id":"`+run+`","version":%d}`, &turn)
			if err == nil {
				err = f.turn(ctx, run, turn, turns)
			}
			if err == nil {
				err = m.Ack()
			}
			mu.Lock()
			defer mu.Unlock()
			each()
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return failed
}

func (f *floor) throughput(ctx context.Context, runs, turns int) (Throughput, error) {
	watch := f.servers.start()
	if err := f.drive(ctx, fmt.Sprint("t", time.Now().UnixNano()), runs, turns, func() {}); err != nil {
		return Throughput{}, err
	}
	return watch.stop(runs * turns), nil
}

func (f *floor) alone(ctx context.Context, turns int) (Latency, error) {
	ms, err := f.steps(ctx, turns)
	return latency(ms[min(3, len(ms)):]), err
}

// steps returns how long each turn of one run takes, in milliseconds.
func (f *floor) steps(ctx context.Context, turns int) ([]float64, error) {
	var ms []float64
	last := time.Now()
	err := f.drive(ctx, fmt.Sprint("a", time.Now().UnixNano()), 1, turns, func() {
		now := time.Now()
		ms = append(ms, float64(now.Sub(last))/1e6)
		last = now
	})
	return ms, err
}
