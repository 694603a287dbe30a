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
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config of a Bus. The zero value of each field gives its default.
type Config struct {
	Prefix   string        // of subjects and, in capitals, of streams; default "turnpike"
	Replicas int           // of each stream; default 1
	AckWait  time.Duration // until an unacknowledged turn is delivered again; default 30 s
	Logger   zerolog.Logger
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "turnpike"
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
	}
	return c
}

// Bus is a bus.Bus on JetStream.
type Bus struct {
	cfg Config
	nc  *nats.Conn
	js  jetstream.JetStream
	log zerolog.Logger

	lanes  map[state.Priority]jetstream.Consumer
	submit jetstream.Consumer
	abort  jetstream.Consumer

	mu     sync.Mutex
	closed bool
	closer []func()
}

var _ bus.Bus = (*Bus)(nil)

// Open creates the streams and consumers that are missing and returns the bus. A
// stream that exists with settings on which turns could be lost is refused.
// Closing the bus leaves the connection to its owner.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Bus, error) {
	cfg = cfg.withDefaults()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	b := &Bus{cfg: cfg, nc: nc, js: js, log: cfg.Logger, lanes: map[state.Priority]jetstream.Consumer{}}
	if err := b.ensure(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Bus) subject(parts ...string) string { return b.cfg.Prefix + "." + strings.Join(parts, ".") }

func (b *Bus) stream(name string) string {
	return strings.ToUpper(strings.ReplaceAll(b.cfg.Prefix, ".", "_")) + "_" + name
}

// Headers of our messages.
const (
	headerRepair = "Turnpike-Repair"
	headerSeq    = "Turnpike-Seq"
	headerTrace  = "traceparent"
)

// publish stores one message. Only what surely did not arrive is sent again, or
// what the server would drop as a double.
func (b *Bus) publish(ctx context.Context, m *nats.Msg, id string) error {
	opts := []jetstream.PublishOpt{}
	if id != "" {
		opts = append(opts, jetstream.WithMsgID(id))
	}
	return b.retry(ctx, func() error {
		callCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := b.js.PublishMsg(callCtx, m, opts...)
		return err
	})
}

// retry repeats a publish whose message has an id for up to ten seconds, well
// below the ack wait.
func (b *Bus) retry(ctx context.Context, op func() error) error {
	grow := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(10*time.Second),
	)
	return backoff.Retry(func() error {
		err := op()
		if errors.Is(err, nats.ErrConnectionClosed) || ctx.Err() != nil {
			return backoff.Permanent(err)
		}
		if api := (&jetstream.APIError{}); errors.As(err, &api) && api.Code < 500 {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(grow, ctx))
}

// PublishTurn implements bus.Turns.
func (b *Bus) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	m := nats.NewMsg(b.subject("turn", string(t.Priority), strconv.Itoa(t.Run.Shard())))
	m.Data = data
	if t.Repair {
		m.Header.Set(headerRepair, "1")
	}
	if t.TraceParent != "" {
		m.Header.Set(headerTrace, t.TraceParent)
	}
	if err := b.publish(ctx, m, id); err != nil {
		return fmt.Errorf("publish turn: %w", err)
	}
	return nil
}

// Lag implements bus.Turns.
func (b *Bus) Lag(ctx context.Context) (int64, error) {
	var n int64
	for _, c := range b.lanes {
		info, err := c.Info(ctx)
		if err != nil {
			return 0, fmt.Errorf("read consumer: %w", err)
		}
		n += int64(info.NumPending) + int64(info.NumAckPending) //nolint:gosec // a queue of 2^63 messages does not exist
	}
	return n, nil
}

// Announce implements bus.Events. The messages of one call travel together, in
// order; those that failed are sent again under the same ids.
func (b *Bus) Announce(ctx context.Context, run state.RunID, events []bus.Event) error {
	subject := b.subject("events", string(run))
	events = slices.Clone(events)
	futures := make([]jetstream.PubAckFuture, len(events))
	var first error
	for i, e := range events {
		f, err := b.js.PublishMsgAsync(b.eventMsg(subject, e), jetstream.WithMsgID(eventID(run, e.Seq)))
		if err != nil {
			first = err
			break
		}
		futures[i] = f
	}
	for i, f := range futures {
		if f == nil {
			continue
		}
		select {
		case <-f.Ok():
			events[i].Data = nil
		case err := <-f.Err():
			first = err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if first == nil {
		return nil
	}
	for _, e := range events {
		if e.Data == nil {
			continue
		}
		if err := b.publish(ctx, b.eventMsg(subject, e), eventID(run, e.Seq)); err != nil {
			return fmt.Errorf("announce event %d: %w", e.Seq, err)
		}
	}
	return nil
}

func eventID(run state.RunID, seq int64) string { return fmt.Sprintf("%s:%d", run, seq) }

func (b *Bus) eventMsg(subject string, e bus.Event) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = e.Data
	m.Header.Set(headerSeq, strconv.FormatInt(e.Seq, 10))
	return m
}

// Live implements bus.Events.
func (b *Bus) Live(run state.RunID, data []byte) {
	if err := b.nc.Publish(b.subject("live", string(run)), data); err != nil {
		b.log.Debug().Err(err).Msg("live event")
	}
}

// watchBuffer is how many events may wait for a watcher before some are lost.
const watchBuffer = 4096

// Watch implements bus.Events.
func (b *Bus) Watch(_ context.Context, run state.RunID, fn func(bus.Event)) (func(), error) {
	// One channel for both subjects keeps the order of arrival.
	return b.listen([]string{b.subject("events", string(run)), b.subject("live", string(run))}, func(m *nats.Msg) {
		e := bus.Event{Data: m.Data}
		if text := m.Header.Get(headerSeq); text != "" {
			seq, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return
			}
			e.Seq = seq
		}
		fn(e)
	})
}

// listen calls fn for each message on the subjects, one at a time, until stop.
func (b *Bus) listen(subjects []string, fn func(*nats.Msg)) (stop func(), err error) {
	ch := make(chan *nats.Msg, watchBuffer)
	var subs []*nats.Subscription
	drop := func() {
		for _, s := range subs {
			_ = s.Unsubscribe()
		}
	}
	for _, subject := range subjects {
		s, err := b.nc.ChanSubscribe(subject, ch)
		if err != nil {
			drop()
			return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		subs = append(subs, s)
	}
	// The server must know of the interest before the caller reads what was
	// there before.
	if err := b.nc.FlushTimeout(5 * time.Second); err != nil {
		drop()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case m := <-ch:
				fn(m)
			case <-quit:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		drop()
		close(quit)
		<-done
	}), nil
}

// PublishAbort implements bus.Control.
func (b *Bus) PublishAbort(ctx context.Context, run state.RunID, reason string) error {
	data, err := json.Marshal(state.Abort{Reason: reason})
	if err != nil {
		return err
	}
	m := nats.NewMsg(b.subject("abort", string(run)))
	m.Data = data
	m.Header.Set(bus.HeaderApplied, "1")
	if err := b.publish(ctx, m, ""); err != nil {
		return fmt.Errorf("publish abort: %w", err)
	}
	return nil
}

// Aborts implements bus.Control.
func (b *Bus) Aborts(_ context.Context, fn func(state.RunID, string)) (func(), error) {
	return b.listen([]string{b.subject("abort", "*")}, func(m *nats.Msg) {
		var a state.Abort
		_ = json.Unmarshal(m.Data, &a) // an abort without a readable reason is an abort
		fn(state.RunID(lastToken(m.Subject)), a.Reason)
	})
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// Reply implements bus.Intake.
func (b *Bus) Reply(_ context.Context, subject string, data []byte) error {
	if err := b.nc.Publish(subject, data); err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	return nil
}

// DeadLetter implements bus.Intake.
func (b *Bus) DeadLetter(ctx context.Context, d bus.DeadLetter) error {
	if d.Lane == "" {
		d.Lane = state.Normal
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	m := nats.NewMsg(b.subject("dead", string(d.Lane)))
	m.Data = data
	if err := b.publish(ctx, m, ""); err != nil {
		return fmt.Errorf("publish dead letter: %w", err)
	}
	return nil
}

// DeadLetters implements bus.Intake.
func (b *Bus) DeadLetters(ctx context.Context, after uint64, limit int) ([]bus.DeadLetter, error) {
	s, err := b.js.Stream(ctx, b.stream("DEAD"))
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	last := s.CachedInfo().State.LastSeq
	letters := []bus.DeadLetter{}
	for seq := max(after+1, s.CachedInfo().State.FirstSeq); seq <= last && len(letters) < limit; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read dead letter %d: %w", seq, err)
		}
		var d bus.DeadLetter
		if err := json.Unmarshal(m.Data, &d); err != nil {
			d = bus.DeadLetter{Cause: "unreadable dead letter", Data: string(m.Data)}
		}
		d.Seq = seq
		letters = append(letters, d)
	}
	return letters, nil
}

// Beat implements bus.Presence.
func (b *Bus) Beat(worker string, gone bool) {
	data := "here"
	if gone {
		data = "gone"
	}
	if err := b.nc.Publish(b.subject("presence", token(worker)), []byte(data)); err != nil {
		b.log.Debug().Err(err).Msg("beat")
	}
}

// token makes a name fit for a subject.
func token(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '*' || r == '>' || r <= ' ' {
			return '_'
		}
		return r
	}, name)
}

// Beats implements bus.Presence.
func (b *Bus) Beats(_ context.Context, fn func(string, bool)) (func(), error) {
	return b.listen([]string{b.subject("presence", "*")}, func(m *nats.Msg) {
		fn(lastToken(m.Subject), string(m.Data) == "gone")
	})
}

// Ready implements bus.Bus.
func (b *Bus) Ready(ctx context.Context) error {
	if !b.nc.IsConnected() {
		return errors.New("not connected to NATS")
	}
	if _, err := b.js.Stream(ctx, b.stream("TURNS")); err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	return nil
}

// onClose registers what Close has to stop.
func (b *Bus) onClose(fn func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return bus.ErrClosed
	}
	b.closer = append(b.closer, fn)
	return nil
}

// Close implements bus.Bus. The connection stays open.
func (b *Bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, fn := range b.closer {
		fn()
	}
	b.closer = nil
	return nil
}
