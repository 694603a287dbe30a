package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// maxTurnStreams is the maximum number of streams of turns: each has a consumer for every queue.
const maxTurnStreams = 64

// layout is the list of streams that the turns are spread over. All processes read it from a message
// of the stream LAYOUT. A deployment that has never had several streams has no such message.
type layout struct {
	// Streams are the numbers of the streams that turns are published to, each turn to the one of
	// its shard. The first is always stream 1, TURNS.
	Streams []int `json:"streams"`

	// Draining are streams that a process with this layout does not publish to. Workers take the remaining messages,
	// and then the streams are deleted.
	Draining []int `json:"draining,omitempty"`

	// Next is the number of the next stream. Numbers are not reused: a process that deletes a
	// drained stream late cannot delete a new one.
	Next int `json:"next"`

	revision uint64 // of the message; 0 if it does not exist
}

// firstStream is the number of the stream TURNS.
const firstStream = 1

// oneStream returns the default layout.
func oneStream() *layout { return &layout{Streams: []int{firstStream}, Next: firstStream + 1} }

// of returns the stream of a shard.
func (l *layout) of(shard int) int { return l.Streams[shard%len(l.Streams)] }

// all returns the streams that may have messages.
func (l *layout) all() []int { return slices.Concat(l.Streams, l.Draining) }

func (l *layout) same(o *layout) bool {
	return l.revision == o.revision && slices.Equal(l.Streams, o.Streams) && slices.Equal(l.Draining, o.Draining)
}

// spread returns the layout with n streams instead.
func (l *layout) spread(n int) *layout {
	s := &layout{Streams: slices.Clone(l.Streams), Draining: slices.Clone(l.Draining), Next: l.Next}
	for ; len(s.Streams) < n; s.Next++ {
		s.Streams = append(s.Streams, s.Next)
	}
	s.Draining = append(s.Draining, s.Streams[n:]...)
	s.Streams = s.Streams[:n]
	return s
}

// without returns the layout without a drained stream.
func (l *layout) without(stream int) *layout {
	return &layout{Streams: l.Streams, Next: l.Next, Draining: slices.DeleteFunc(slices.Clone(l.Draining), func(k int) bool { return k == stream })}
}

func (l *layout) validate() error {
	all := l.all()
	slices.Sort(all)
	switch {
	case len(l.Streams) == 0 || l.Streams[0] != firstStream:
		return fmt.Errorf("its first stream is not %d", firstStream)
	case len(all) != len(slices.Compact(slices.Clone(all))):
		return errors.New("it lists a stream twice")
	case all[0] < firstStream || all[len(all)-1] >= l.Next:
		return fmt.Errorf("its streams have numbers from %d to %d, but %d to %d are allowed", all[0], all[len(all)-1], firstStream, l.Next-1)
	default:
		return nil
	}
}

func (conn *connection) layoutStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: conn.stream("LAYOUT"), Subjects: []string{conn.subject("layout")}, Storage: jetstream.FileStorage, Replicas: conn.cfg.Replicas,
		Duplicates: remembered, Discard: jetstream.DiscardOld, MaxMsgs: layoutMessages, MaxMsgSize: 64 << 10,
	}
}

// layoutMessages is the number of messages that the stream LAYOUT keeps.
const layoutMessages = 64

// turnStreams are the streams of turns of a deployment, and the queues that this process reads from
// them.
type turnStreams struct {
	*connection

	layout atomic.Pointer[layout]
	hints  chan struct{} // holds a token if the layout may have changed
	slots  slots

	stickies stickyQueues

	adopting sync.Mutex // guards queues, and is held while the layout changes
	queues   map[*puller]bus.QueueKey
}

func newTurnStreams(conn *connection) *turnStreams {
	ts := &turnStreams{connection: conn, hints: make(chan struct{}, 1), queues: map[*puller]bus.QueueKey{}}
	ts.slots.asked = conn.cfg.MaxAckPending
	ts.layout.Store(oneStream())
	return ts
}

// errNoLayout reports that the deployment has no message with a layout.
var errNoLayout = errors.New("the list of turn streams is missing")

// readLayout reads the latest layout in the stream LAYOUT. The
// error is errNoLayout if the stream is missing or has no message.
//
// It skips messages that are not layouts, and reads up to layoutMessages: a client that publishes to any stream
// may name the subject of the layout for the reply, and the server then stores its acknowledgement there.
func (ts *turnStreams) readLayout(ctx context.Context) (*layout, error) {
	said, err := ts.latest(ctx, ts.stream("LAYOUT"), ts.subject("layout"))
	if err != nil {
		return nil, fmt.Errorf("read the list of turn streams: %w", err)
	}
	if said.seq == 0 {
		return nil, errNoLayout
	}
	l, invalid := parseLayout(said.data)
	for seq := said.seq - 1; invalid != nil && seq > 0 && said.seq-seq < layoutMessages; seq-- {
		before, err := ts.message(ctx, ts.stream("LAYOUT"), map[string]any{"seq": seq})
		if err != nil {
			return nil, fmt.Errorf("read the list of turn streams: %w", err)
		}
		if earlier, err := parseLayout(before.data); err == nil {
			l, invalid = earlier, nil
		}
	}
	if err := invalid; err != nil {
		return nil, fmt.Errorf("message %d of stream %s is not a list of turn streams: %w: remove it with `nats stream rmm %s %d`", said.seq, ts.stream("LAYOUT"), err, ts.stream("LAYOUT"), said.seq)
	}
	l.revision = said.seq
	return l, nil
}

func parseLayout(data []byte) (*layout, error) {
	l := &layout{}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, err
	}
	return l, l.validate()
}

// findLayout reads the layout at startup. If it is missing, it drains the streams that exist
// nevertheless.
func (ts *turnStreams) findLayout(ctx context.Context) (*layout, error) {
	l, err := ts.readLayout(ctx)
	if !errors.Is(err, errNoLayout) {
		return l, err
	}
	l = oneStream()
	names := ts.js.StreamNames(ctx)
	for name := range names.Name() {
		number, ok := strings.CutPrefix(name, ts.stream("TURNS_"))
		if k, err := strconv.Atoi(number); ok && err == nil && k > firstStream {
			l.Draining = append(l.Draining, k)
			l.Next = max(l.Next, k+1)
		}
	}
	return l, names.Err()
}

// writeLayout replaces the layout with that revision. If another process has replaced it already,
// the error is errMoved.
func (ts *turnStreams) writeLayout(ctx context.Context, l *layout, revision uint64) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode the list of turn streams: %w", err)
	}
	return ts.replace(ctx, ts.layoutStream(), ts.subject("layout"), data, revision, max(revision, l.revision) > 0)
}

// layoutEvery is the interval at which a process reads the layout and checks the streams that are
// draining.
const layoutEvery = time.Second

// spread spreads the turns over n streams. It creates streams before turns are published to them.
func (ts *turnStreams) spread(ctx context.Context, n int) error {
	var unwritten error
	for range 20 {
		old := ts.layout.Load()
		if len(old.Streams) == n {
			return nil
		}
		l := old.spread(n)
		if err := ts.ensureTurns(ctx, l.Streams); err != nil {
			return fmt.Errorf("%w, or unset TURNPIKE_TURN_STREAMS (in Go, NATS.TurnStreams) to use the existing streams", err)
		}
		if unwritten = notMoved(ts.writeLayout(ctx, l, old.revision)); unwritten != nil && hopeless(unwritten) {
			break
		}
		changed, err := ts.learn(ctx) // an answer may have been lost
		if err != nil {
			return err
		}
		if changed || unwritten == nil {
			ts.tell()
			ts.log.Info("the number of turn streams has changed", "streams", ts.layout.Load().Streams)
		}
	}
	if unwritten != nil {
		return fmt.Errorf("the list of turn streams cannot be written (%w): run `turnpike doctor`: NATS may be unreachable or have no storage left", unwritten)
	}
	return errors.New("other processes keep changing the number of turn streams: set the same TURNPIKE_TURN_STREAMS (in Go, NATS.TurnStreams) in all gateways and workers")
}

func notMoved(err error) error {
	if errors.Is(err, errMoved) {
		return nil
	}
	return err
}

// learn reads and adopts the layout. If the layout is gone, learn writes the one that this process has again, unless
// that is the default one and was never read. changed reports whether this process had another layout before, or
// another revision of the same.
func (ts *turnStreams) learn(ctx context.Context) (changed bool, err error) {
	l, err := ts.readLayout(ctx)
	old := ts.layout.Load()
	if errors.Is(err, errNoLayout) {
		if old.revision == 0 && len(old.all()) == 1 {
			return false, nil
		}
		if err = notMoved(ts.writeLayout(ctx, old, 0)); err == nil {
			l, err = ts.readLayout(ctx)
		}
	}
	if err != nil {
		return false, err
	}
	return ts.adopt(ctx, l)
}

// adopt applies a layout: it takes turns from all of its streams before it publishes to any.
func (ts *turnStreams) adopt(ctx context.Context, l *layout) (changed bool, err error) {
	ts.adopting.Lock()
	defer ts.adopting.Unlock()
	if l.same(ts.layout.Load()) {
		return false, nil
	}
	for p, key := range ts.queues {
		if err := p.serve(ts.queueSpecs(key, l)); err != nil && !errors.Is(err, bus.ErrClosed) {
			return false, err
		}
	}
	ts.layout.Store(l)
	return true, nil
}

// queueSpecs returns the consumers of a queue, one per stream.
func (ts *turnStreams) queueSpecs(key bus.QueueKey, l *layout) []consumerSpec {
	var specs []consumerSpec
	for _, number := range l.all() {
		specs = append(specs, ts.queue(number, key))
	}
	return specs
}

// isDrained reports whether no process publishes to a stream of turns.
func (ts *turnStreams) isDrained(name string) bool {
	open := ts.layout.Load().Streams
	return strings.HasPrefix(name, ts.stream("TURNS_")) && !slices.ContainsFunc(open, func(k int) bool { return ts.turnStream(k) == name })
}

// publishTurn publishes to the stream of a shard. If that does not answer, because this process has
// an old layout or the stream is gone, the turn goes to the first stream, which every worker reads.
func (b *Bus) publishTurn(ctx context.Context, key bus.QueueKey, shard int, m *nats.Msg) error {
	token := strconv.Itoa(shard)
	number, elsewhere := b.layout.Load().of(shard), ""
	if number != firstStream {
		elsewhere = b.turnSubject(firstStream, key.String(), token)
	}
	m.Subject = b.turnSubject(number, key.String(), token)
	err := b.publish(ctx, m, elsewhere)
	if m.Subject == elsewhere {
		b.turnWrites.note(target{turns: number}, jetstream.ErrNoStreamResponse)
		number = firstStream
	}
	b.turnWrites.note(target{turns: number}, err)
	return err
}

// followLayout adopts new layouts, and drains streams, until ctx ends.
func (b *Bus) followLayout(ctx context.Context) {
	tick := time.NewTicker(layoutEvery)
	defer tick.Stop()
	seen := drains{}
	for ticks := 0; ; {
		heard := false
		select {
		case <-ctx.Done():
			return
		case <-b.hints:
			heard = true
		case <-tick.C:
		}
		b.raisePending(ctx)
		if ticks++; heard || ticks%tenantTicks == 0 {
			b.lookForTenants(ctx)
		}
		changed, err := b.learn(ctx)
		if err != nil {
			b.log.Debug("layout of the streams not read", "error", err)
			continue
		}
		if changed && !heard {
			b.tell()
		}
		if !heard {
			b.drain(ctx, seen)
		}
	}
}

// look makes followLayout read the layout now.
func (ts *turnStreams) look() {
	select {
	case ts.hints <- struct{}{}:
	default:
	}
}
