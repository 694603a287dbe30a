package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// maxTurnStreams is the maximum number of streams of turns: each has a consumer for every queue.
const maxTurnStreams = 64

// layout is the list of streams that the turns are spread over. It is a message of the stream
// LAYOUT, which all processes read; a deployment that has never had several streams has none.
type layout struct {
	// Streams are the numbers of the streams that turns are published to, each turn to the one of
	// its shard. The first is always stream 1, TURNS.
	Streams []int `json:"streams"`

	// Draining are streams that no process publishes to. Workers take the remaining messages, and
	// then the streams are deleted.
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
		return fmt.Errorf("the first stream must be %d", firstStream)
	case len(all) != len(slices.Compact(slices.Clone(all))):
		return errors.New("a stream is there twice")
	case all[0] < firstStream || all[len(all)-1] >= l.Next:
		return fmt.Errorf("the streams must be numbered %d to %d", firstStream, l.Next-1)
	default:
		return nil
	}
}

// turnStream returns the name of a stream of turns.
func (b *Bus) turnStream(number int) string {
	if number == firstStream {
		return b.stream("TURNS")
	}
	return b.stream("TURNS_" + strconv.Itoa(number))
}

// turnSubject returns a subject of a stream of turns. The subjects of the first stream are older
// than the others, which begin with another word: subjects of streams must not overlap.
func (b *Bus) turnSubject(number int, parts ...string) string {
	all := make([]byte, 0, 128)
	all = append(append(all, b.cfg.Prefix...), ".turn"...)
	if number != firstStream {
		all = strconv.AppendInt(append(all, "s."...), int64(number), 10)
	}
	for _, p := range parts {
		all = append(append(all, '.'), p...)
	}
	return string(all)
}

// closedSubject returns the only subject of a stream that is drained. No process publishes to it.
func (b *Bus) closedSubject(number int) string { return b.turnSubject(number, "closed") }

func (b *Bus) layoutStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: b.stream("LAYOUT"), Subjects: []string{b.subject("layout")}, Storage: jetstream.FileStorage, Replicas: b.cfg.Replicas,
		Duplicates: remembered, Discard: jetstream.DiscardOld, MaxMsgs: 64, MaxMsgSize: 64 << 10,
	}
}

// errNoLayout reports that the deployment has no message with a layout.
var errNoLayout = errors.New("no layout")

// readLayout reads the latest message of the stream.
func (b *Bus) readLayout(ctx context.Context) (*layout, error) {
	said, err := b.latest(ctx, b.stream("LAYOUT"), b.subject("layout"))
	if err != nil {
		return nil, fmt.Errorf("read layout: %w", err)
	}
	if said.seq == 0 {
		return nil, errNoLayout
	}
	l := &layout{revision: said.seq}
	err = json.Unmarshal(said.data, l)
	if err == nil {
		err = l.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("message %d of stream %s is no layout: %w: remove it with `nats stream rmm %s %d`", said.seq, b.stream("LAYOUT"), err, b.stream("LAYOUT"), said.seq)
	}
	return l, nil
}

// record is the latest message of a subject. A seq of 0 means that there is no message.
type record struct {
	seq  uint64
	data []byte
	at   time.Time
}

// latest reads the latest message of a subject from the leader of a stream. A missing stream has
// none.
func (b *Bus) latest(ctx context.Context, stream, subject string) (record, error) {
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return record{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, b.api+"STREAM.MSG.GET."+stream, request)
	if err != nil {
		return record{}, err
	}
	var said struct {
		Message struct {
			Seq  uint64    `json:"seq"`
			Data []byte    `json:"data"`
			Time time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &said); err != nil {
		return record{}, err
	}
	if said.Error != nil {
		if said.Error.Code == 404 { // no stream, or no message
			return record{}, nil
		}
		return record{}, said.Error
	}
	return record{said.Message.Seq, said.Message.Data, said.Message.Time}, nil
}

// findLayout reads the layout at startup. If it is missing, it drains the streams that exist
// nevertheless.
func (b *Bus) findLayout(ctx context.Context) (*layout, error) {
	l, err := b.readLayout(ctx)
	if !errors.Is(err, errNoLayout) {
		return l, err
	}
	l = oneStream()
	names := b.js.StreamNames(ctx)
	for name := range names.Name() {
		number, ok := strings.CutPrefix(name, b.stream("TURNS_"))
		if k, err := strconv.Atoi(number); ok && err == nil && k > firstStream {
			l.Draining = append(l.Draining, k)
			l.Next = max(l.Next, k+1)
		}
	}
	return l, names.Err()
}

// writeLayout replaces the layout with that revision. If another process has replaced it already,
// the error is errMoved.
func (b *Bus) writeLayout(ctx context.Context, l *layout, revision uint64) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode layout: %w", err)
	}
	return b.replace(ctx, b.layoutStream(), b.subject("layout"), data, revision, max(revision, l.revision) > 0)
}

// replace stores a message in place of the latest of its subject, which must have the sequence
// revision; else the error is errMoved. It creates a missing stream; existed means that there was
// one.
func (b *Bus) replace(ctx context.Context, stream jetstream.StreamConfig, subject string, data []byte, revision uint64, existed bool) error {
	m := newMsg(subject, data, "", jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	err := b.ask(ctx, m, publishTimeout)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if existed {
			if err := awaitDeletion(ctx); err != nil {
				return err
			}
		}
		if err := b.ensureStream(ctx, stream); err != nil {
			return err
		}
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
		err = b.ask(ctx, m, publishTimeout)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return errMoved
	}
	return err
}

var errMoved = errors.New("another process has changed it")

// layoutEvery is the interval at which a process reads the layout and checks the streams that are
// draining.
const layoutEvery = time.Second

// spread spreads the turns over n streams. It creates streams before turns are published to them.
func (b *Bus) spread(ctx context.Context, n int) error {
	for range 20 {
		old := b.layout.Load()
		if len(old.Streams) == n {
			return nil
		}
		l := old.spread(n)
		if err := b.ensureTurns(ctx, l.Streams); err != nil {
			return err
		}
		if err := notMoved(b.writeLayout(ctx, l, old.revision)); err != nil && hopeless(err) {
			return err
		}
		if _, err := b.learn(ctx); err != nil { // an answer may have been lost
			return err
		}
		b.tell()
		b.log.Info("turns are spread over these streams", "streams", b.layout.Load().Streams)
	}
	return errors.New("other processes change the number of streams all the time: is TURNPIKE_TURN_STREAMS the same everywhere?")
}

func notMoved(err error) error {
	if errors.Is(err, errMoved) {
		return nil
	}
	return err
}

// learn reads and adopts the layout. If the layout is gone, learn writes it again. It reports
// whether the layout was new.
func (b *Bus) learn(ctx context.Context) (changed bool, err error) {
	l, err := b.readLayout(ctx)
	old := b.layout.Load()
	if errors.Is(err, errNoLayout) {
		if old.revision == 0 && len(old.all()) == 1 {
			return false, nil
		}
		if err = notMoved(b.writeLayout(ctx, old, 0)); err == nil {
			l, err = b.readLayout(ctx)
		}
	}
	if err != nil {
		return false, err
	}
	return b.adopt(ctx, l)
}

// adopt applies a layout: it takes turns from all of its streams before it publishes to any.
func (b *Bus) adopt(ctx context.Context, l *layout) (changed bool, err error) {
	b.adopting.Lock()
	defer b.adopting.Unlock()
	if l.same(b.layout.Load()) {
		return false, nil
	}
	for p, key := range b.turnQueues {
		if err := p.serve(b.queueSpecs(key, l)); err != nil && !errors.Is(err, bus.ErrClosed) {
			return false, err
		}
	}
	b.layout.Store(l)
	return true, nil
}

// queueSpecs returns the consumers of a queue, one per stream.
func (b *Bus) queueSpecs(key bus.QueueKey, l *layout) []consumerSpec {
	var specs []consumerSpec
	for _, number := range l.all() {
		specs = append(specs, b.queue(number, key))
	}
	return specs
}

// isDrained reports whether no process publishes to a stream of turns.
func (b *Bus) isDrained(name string) bool {
	open := b.layout.Load().Streams
	return strings.HasPrefix(name, b.stream("TURNS_")) && !slices.ContainsFunc(open, func(k int) bool { return b.turnStream(k) == name })
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

// hintSubject returns the subject on which a process announces a new layout, so that all adopt it
// at the same time. The hint may be lost.
func (b *Bus) hintSubject() string { return b.subject("layout", "changed") }

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
func (b *Bus) look() {
	select {
	case b.hints <- struct{}{}:
	default:
	}
}

// tell makes the other processes read the layout.
func (b *Bus) tell() {
	if err := b.nc.Publish(b.hintSubject(), nil); err != nil {
		b.log.Debug("layout", "error", err) // they look themselves
	}
}
