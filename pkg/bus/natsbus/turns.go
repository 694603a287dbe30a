package natsbus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// PublishTurn implements bus.Turns.
func (b *Bus) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	if !slices.Contains(state.Priorities(), t.Priority) {
		return fmt.Errorf("publish turn of run %s: its priority is %q: set high, normal or low", t.Run, t.Priority)
	}
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode turn: %w", err)
	}
	var header []string
	if t.Tenant != "" {
		header = append(header, headerTenant, t.Tenant)
	}
	if t.TraceParent != "" {
		header = append(header, headerTrace, t.TraceParent)
	}
	m := newMsg("", data, id, header...)
	if t.Sticky != "" {
		err = b.publishSticky(ctx, t, m)
	} else {
		err = b.publishTurn(ctx, t.Queue(), t.Run.Shard(), m)
	}
	if err != nil {
		return fmt.Errorf("publish turn: %w", err)
	}
	return nil
}

// Lag implements bus.Turns.
func (ts *turnStreams) Lag(ctx context.Context) (int64, error) {
	lanes, err := ts.LagByLane(ctx)
	var n int64
	for _, lag := range lanes {
		n += lag.Waiting + lag.Fetched
	}
	return n, err
}

// LagByLane implements bus.Turns.
func (ts *turnStreams) LagByLane(ctx context.Context) (map[state.Priority]bus.LaneLag, error) {
	var mu sync.Mutex
	lanes := map[state.Priority]bus.LaneLag{}
	err := ts.eachUsedQueue(ctx, func(_ context.Context, key bus.QueueKey, info *jetstream.ConsumerInfo) error {
		mu.Lock()
		defer mu.Unlock()
		lag := lanes[key.Lane]
		lag.Waiting += int64(info.NumPending) //nolint:gosec // a queue of 2^63 messages does not exist
		lag.Fetched += int64(info.NumAckPending)
		lanes[key.Lane] = lag
		return nil
	})
	if err == nil {
		err = ts.addSticky(ctx, lanes)
	}
	return lanes, err
}

// Backlog implements bus.Turns.
func (ts *turnStreams) Backlog(ctx context.Context) (state.Backlog, error) {
	var mu sync.Mutex
	oldest := state.Backlog{}
	return oldest, ts.eachUsedQueue(ctx, func(ctx context.Context, key bus.QueueKey, info *jetstream.ConsumerInfo) error {
		if info.NumPending == 0 {
			return nil
		}
		stream, err := ts.js.Stream(ctx, info.Stream)
		if err != nil {
			return fmt.Errorf("read stream %s: %w", info.Stream, err)
		}
		m, err := stream.GetMsg(ctx, info.Delivered.Stream+1, jetstream.WithGetMsgSubject(info.Config.FilterSubject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil // a worker has fetched it in the meantime
		}
		if err != nil {
			return fmt.Errorf("read the oldest message of consumer %s in stream %s: %w", info.Name, info.Stream, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if at, ok := oldest[key.Lane]; !ok || m.Time.Before(at) {
			oldest[key.Lane] = m.Time
		}
		return nil
	})
}

// eachUsedQueue is eachQueue for the streams that have messages. One request for a stream without any replaces one for
// each of its queues.
func (ts *turnStreams) eachUsedQueue(ctx context.Context, fn func(context.Context, bus.QueueKey, *jetstream.ConsumerInfo) error) error {
	l := ts.layout.Load()
	used := make([]bool, len(l.all()))
	all, within := errgroup.WithContext(ctx)
	all.SetLimit(sideBySide)
	for i, number := range l.all() {
		all.Go(func() error {
			stream, err := ts.js.Stream(within, ts.turnStream(number))
			if isMissing(err) && ts.isDrained(ts.turnStream(number)) {
				return nil // it was empty
			}
			if err != nil {
				return fmt.Errorf("read stream %s: %w", ts.turnStream(number), err)
			}
			used[i] = stream.CachedInfo().State.Msgs > 0
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	some := &layout{}
	for i, number := range l.all() {
		if used[i] {
			some.Streams = append(some.Streams, number)
		}
	}
	return ts.eachQueueOf(ctx, some, fn)
}

// eachQueue calls fn for each queue of each stream of turns, several at once.
func (ts *turnStreams) eachQueue(ctx context.Context, fn func(context.Context, bus.QueueKey, *jetstream.ConsumerInfo) error) error {
	return ts.eachQueueOf(ctx, ts.layout.Load(), fn)
}

func (ts *turnStreams) eachQueueOf(ctx context.Context, l *layout, fn func(context.Context, bus.QueueKey, *jetstream.ConsumerInfo) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(sideBySide)
	for _, key := range bus.QueueKeys() {
		for _, spec := range ts.queueSpecs(key, l) {
			all.Go(func() error {
				c, err := ts.js.Consumer(ctx, spec.stream, spec.config.Durable)
				if isMissing(err) && ts.isDrained(spec.stream) {
					return nil // it was empty
				}
				if err != nil {
					return fmt.Errorf("read consumer %s of %s: %w", spec.config.Durable, spec.stream, err)
				}
				return fn(ctx, key, c.CachedInfo())
			})
		}
	}
	return all.Wait()
}

// turnQueue is a queue of a lane, or that of a worker, which has turns of all lanes.
type turnQueue struct {
	*puller

	key    bus.QueueKey // of a lane
	worker string       // whose queue it is; empty for a lane
}

// Turns implements bus.Turns.
func (b *Bus) Turns(ctx context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	if !slices.Contains(bus.QueueKeys(), key) {
		return nil, fmt.Errorf("there is no queue %q of turns", key)
	}
	b.turnStreams.adopting.Lock()
	defer b.turnStreams.adopting.Unlock()
	p, err := b.pull(ctx, b.queueSpecs(key, b.layout.Load()), 4*maxBatch)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.leaves = true
	p.mu.Unlock()
	b.turnStreams.queues[p] = key
	return turnQueue{p, key, ""}, nil
}

// Close implements bus.TurnQueue.
func (q turnQueue) Close() error {
	turns := q.b.turnStreams
	if q.worker != "" {
		turns.stickies.remove(q.worker)
	}
	turns.adopting.Lock()
	delete(turns.queues, q.puller)
	turns.adopting.Unlock()
	return q.puller.Close()
}

// keyOf returns the key of the lane's queue that has a message, or would have it.
func (q turnQueue) keyOf(m *nats.Msg) bus.QueueKey {
	if q.worker == "" {
		return q.key
	}
	return queueKey(lastToken(m.Subject))
}

type turnDelivery struct {
	delivery

	turn bus.Turn
}

func (d turnDelivery) Turn() bus.Turn { return d.turn }

// Next implements bus.TurnQueue. It stores a malformed message as a dead letter, and drops an answer of JetStream.
func (q turnQueue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	for {
		m, err := q.take(ctx)
		if err != nil {
			return nil, err
		}
		t, err := decodeTurn(m.Data)
		if err != nil && isAnswer(m) {
			q.b.dropAnswer(m)
			continue
		}
		if err != nil {
			q.reject(ctx, m, err)
			continue
		}
		key := q.keyOf(m)
		t.Priority, t.Noisy, t.Sticky = key.Lane, key.Noisy, q.worker
		t.Tenant, t.TraceParent = m.Header.Get(headerTenant), m.Header.Get(headerTrace)
		m.Header, m.Data = nil, nil // a turn may last long, and needs only the ack
		return turnDelivery{delivery{m}, t}, nil
	}
}

// reject moves a malformed message to the dead letters.
func (q turnQueue) reject(ctx context.Context, m *nats.Msg, cause error) {
	letter := bus.DeadLetter{Kind: bus.DeadTurn, Tenant: m.Header.Get(headerTenant), Lane: q.keyOf(m).Lane, Cause: "malformed turn message: " + cause.Error(), At: state.At(time.Now()), Data: string(m.Data)}
	id := ""
	if meta, err := m.Metadata(); err == nil {
		id = fmt.Sprintf("malformed:%d", meta.Sequence.Stream) // once, in case the ack is lost
		if meta.Stream != q.b.turnStream(firstStream) {
			id = fmt.Sprintf("malformed:%s:%d", meta.Stream, meta.Sequence.Stream)
		}
	}
	err := q.b.bury(ctx, letter, id)
	if err == nil {
		err = m.Ack()
	} else {
		_ = m.NakWithDelay(q.b.cfg.AckWait / 4) // else it is redelivered after the ack wait
	}
	if err != nil {
		q.b.log.Warn("malformed turn message not moved to the dead letters, NATS redelivers it", "error", err, "hint", "run `turnpike doctor`: NATS may be unreachable or refuse the operation")
	}
}

func decodeTurn(data []byte) (bus.Turn, error) {
	t, ok := plainTurn(data)
	if !ok {
		if err := json.Unmarshal(data, &t); err != nil {
			return bus.Turn{}, err
		}
	}
	if _, err := state.ParseRunID(string(t.Run)); err != nil {
		return bus.Turn{}, err
	}
	if t.Version < 0 {
		return bus.Turn{}, fmt.Errorf("the version is %d, want 1 or more", t.Version)
	}
	return t, nil
}

// plainTurn decodes a message in the form that PublishTurn writes.
func plainTurn(data []byte) (t bus.Turn, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"run_id":"`))
	run, rest, found := bytes.Cut(rest, []byte(`","version":`))
	number, end := bytes.CutSuffix(rest, []byte(`}`))
	if !ok || !found || !end || len(number) == 0 || number[0] < '1' || number[0] > '9' {
		return bus.Turn{}, false
	}
	if _, err := state.ParseRunID(string(run)); err != nil {
		return bus.Turn{}, false
	}
	version, err := strconv.ParseInt(string(number), 10, 64)
	t.Run, t.Version = state.RunID(run), version
	return t, err == nil
}

type queue struct{ *puller }

type message struct {
	delivery

	tenant string
}

func (m message) Key() string               { return lastToken(m.msg.Subject) }
func (m message) Tenant() string            { return m.tenant }
func (m message) Data() []byte              { return m.msg.Data }
func (m message) Header(name string) string { return m.msg.Header.Get(name) }

// ID includes the time, because a recreated stream restarts its numbers at 1.
func (m message) ID() string {
	meta, err := m.msg.Metadata()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", meta.Sequence.Stream, meta.Timestamp.UnixNano())
}

// Next implements bus.Queue. It drops answers of JetStream.
func (q queue) Next(ctx context.Context) (bus.Message, error) {
	m, err := q.take(ctx)
	for ; err == nil; m, err = q.take(ctx) {
		if isAnswer(m) {
			q.b.dropAnswer(m)
		} else if isProbe(m) {
			_ = m.Ack() // it is redelivered
		} else {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if !q.b.applied(m) {
		m.Header.Del(bus.HeaderApplied)
	}
	return message{delivery{m}, q.b.tenantOf(m.Subject)}, nil
}

// Submissions implements bus.Intake.
func (b *Bus) Submissions(ctx context.Context) (bus.Queue, error) { return b.intake(ctx, kindSubmit) }

// AbortRequests implements bus.Intake.
func (b *Bus) AbortRequests(ctx context.Context) (bus.Queue, error) {
	return b.intake(ctx, kindControl)
}
