package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/sync/singleflight"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config of a Bus. The zero value of each field gives its default.
type Config struct {
	Prefix   string        // of subjects and, in capitals, of streams; default "turnpike"
	Domain   string        // of JetStream; default that of the connected server
	Replicas int           // of each stream, 1 to 5; Open raises existing streams with fewer; default 1
	AckWait  time.Duration // until an unacknowledged message is delivered again, 100 ms or more; default 30 s
	Logger   *slog.Logger  // default: no log

	// TurnStreams is the number of streams that turns are spread over, 1 to 64, each shard in one.
	// Opening a bus with another number changes the deployment for all processes, without a restart of
	// the others: no turn is lost, and a message may arrive twice. 0 keeps the current number, which is
	// initially 1.
	TurnStreams int

	// MaxAckPending is the maximum number of unacknowledged messages of a queue, for each stream. 0
	// means at least 50,000, and more if the slots of the workers that send heartbeats require it.
	MaxAckPending int

	// EventFeed gives the deployment a stream with the committed events of all runs, for services
	// that read the bus and not the API. Workers fill it.
	EventFeed bool

	// ReadOnly opens a bus only for Check: Open creates and changes nothing.
	ReadOnly bool

	// Keys sign live events, heartbeats, aborts and the event feed. Every process must have the first key of each
	// other process among its keys; without keys nothing is signed. SetKeys replaces them.
	Keys Keys

	// Limits of all streams except those of turns.
	Limits Limits
}

// Limits bound streams in bytes, and the event feed also by age, to protect the disk that holds the turns. A limit of 0
// means the default. A negative limit in bytes means no limit; others must be 1 MiB or more. The streams of a tenant
// other than the default one get a quarter of each limit but Files, and less, down to 1 MiB, if there are many tenants
// or the server lacks space. If an existing stream has no limit or a lower one, the bus raises it: Open that of the
// streams of the default tenant, and later calls those of files and of other tenants. A stream keeps its lower limit,
// or none, if the server lacks the space even so, or if dead letters would be deleted. Check reports that of the streams
// that Open raises; of others it reports only some that have no limit.
type Limits struct {
	Submit  int64 // submissions over the bus; if full, it refuses more; default 512 MiB
	Control int64 // aborts; if full, it refuses more; default 64 MiB
	Dead    int64 // dead letters; if full, the oldest are deleted; default 256 MiB
	Events  int64 // the event feed; if full, the oldest are deleted; default 1 GiB
	Files   int64 // files of one tenant; if full, it refuses more; default 1 GiB

	EventsAge time.Duration // maximum age of events in the feed; default 72 h
}

// minLimit is the smallest limit of a stream.
const minLimit = 1 << 20

func (l Limits) withDefaults() Limits {
	limit := func(asked, byDefault int64) int64 { return max(cmp.Or(asked, byDefault), -1) } // servers accept nothing below -1
	return Limits{limit(l.Submit, 512<<20), limit(l.Control, 64<<20), limit(l.Dead, 256<<20), limit(l.Events, 1<<30), limit(l.Files, bus.DefaultObjectBytes), cmp.Or(l.EventsAge, eventsAge)}
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
	c.Limits = c.Limits.withDefaults()
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

var prefixes = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

var domains = regexp.MustCompile(`^[^\s.*>]+$`)

func (c Config) validate() error {
	var errs []error
	if !prefixes.MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("prefix is %q: use letters, digits, _ and -, in parts joined by dots (TURNPIKE_PREFIX; in Go, Prefix)", c.Prefix))
	}
	if c.Domain != "" && !domains.MatchString(c.Domain) {
		errs = append(errs, fmt.Errorf("the JetStream domain is %q: use the domain of the NATS server, without spaces, dots and wildcards (TURNPIKE_NATS_DOMAIN; in Go, NATS.Domain)", c.Domain))
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		errs = append(errs, fmt.Errorf("replicas is %d: set 1 to 5 (TURNPIKE_NATS_REPLICAS; in Go, NATS.Replicas)", c.Replicas))
	}
	if c.AckWait < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("ack wait is %v: set AckWait to 100ms or more", c.AckWait))
	}
	if c.TurnStreams < 0 || c.TurnStreams > maxTurnStreams {
		errs = append(errs, fmt.Errorf("turn streams is %d: set 1 to %d, or 0 to keep the current number (TURNPIKE_TURN_STREAMS; in Go, NATS.TurnStreams)", c.TurnStreams, maxTurnStreams))
	}
	if c.MaxAckPending < 0 {
		errs = append(errs, fmt.Errorf("max ack pending is %d: set 1 or more, or 0 for a number that fits the slots of the workers (TURNPIKE_MAX_ACK_PENDING; in Go, NATS.MaxAckPending)", c.MaxAckPending))
	}
	for _, l := range []struct {
		setting string
		bytes   int64
	}{
		{"TURNPIKE_SUBMIT_MIB; in Go, NATS.Limits.Submit", c.Limits.Submit}, {"TURNPIKE_CONTROL_MIB; in Go, NATS.Limits.Control", c.Limits.Control},
		{"TURNPIKE_DEAD_MIB; in Go, NATS.Limits.Dead", c.Limits.Dead}, {"TURNPIKE_EVENTS_MIB; in Go, NATS.Limits.Events", c.Limits.Events},
		{"TURNPIKE_FILES_MIB; in Go, NATS.Limits.Files", c.Limits.Files},
	} {
		if l.bytes >= 0 && l.bytes < minLimit {
			errs = append(errs, fmt.Errorf("the limit of a stream is %d bytes: set 1 MiB or more, or less than 0 for no limit (%s)", l.bytes, l.setting))
		}
	}
	return errors.Join(errs...)
}

// Bus is a bus.Bus on JetStream, with more methods for checks and maintenance. turnStreams and tenantStreams have the
// rules about when streams exist and which of them this process reads. Bus has many methods because the interface has.
type Bus struct {
	*connection
	*turnStreams
	*tenantStreams

	signer   atomic.Pointer[signer] // nil without keys
	watching watching
	tracking sync.Mutex
	watchers atomic.Pointer[watchers] // nil if nothing in this process tracks them; tracking guards changes

	turnWrites, intakeWrites writes

	restoring   singleflight.Group // guards the next two fields
	restored    time.Time
	notRestored error

	mu     sync.Mutex
	closed bool
	nextID int
	open   map[int]func() // functions that Close calls
}

var _ bus.Bus = (*Bus)(nil)

// Open creates the missing streams of turns and of the default tenant's submissions, aborts, dead letters and (with
// EventFeed) events, with their consumers; other streams are created when they are used. Open fails if an existing one
// has a setting that it does not change and that could lose messages, such as another retention; the error has the
// remedy. It tries to raise replicas and limits that are lower than cfg asks for, and to set the age of events: if NATS
// refuses that, Open only logs it. With cfg.ReadOnly it does none of this. ctx bounds only Open. The caller must close
// nc itself, after the bus.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Bus, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open bus: %w", err)
	}
	js, err := JetStream(nc, cfg.Domain)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	conn := &connection{names: names{cfg.Prefix}, cfg: cfg, nc: nc, js: js, api: apiPrefix(cfg.Domain), log: cfg.Logger}
	b := &Bus{connection: conn, turnStreams: newTurnStreams(conn), tenantStreams: newTenantStreams(conn), open: map[int]func(){}}
	b.SetKeys(cfg.Keys)
	var stop func()
	if b.answers, stop, err = listenForAnswers(nc); err != nil {
		return nil, fmt.Errorf("open bus: %w", err)
	}
	if _, err = b.onClose(stop); err != nil {
		return nil, err
	}
	if err := b.begin(ctx); err != nil {
		_ = b.Close()
		return nil, err
	}
	quit := make(chan struct{})
	go b.repeatWatches(quit) // ends with Close
	_, err = b.onClose(func() { close(quit) })
	return b, err
}

// begin finds the streams, creates missing ones, and follows the layout from then on.
func (b *Bus) begin(ctx context.Context) error {
	found, err := b.findLayout(ctx)
	if err == nil {
		b.layout.Store(found)
	}
	if b.cfg.ReadOnly && noJetStream(err) {
		return nil // Check reports it
	}
	if unusable := b.ensure(ctx); unusable != nil {
		err = unusable // more specific about a server without JetStream
	}
	if err != nil || b.cfg.ReadOnly {
		return err
	}
	unsubscribe, err := b.listen(ctx, []string{b.hintSubject()}, func(*nats.Msg) { b.look() })
	if err != nil {
		return err
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.followLayout(following)
	}()
	if _, err := b.onClose(func() { unsubscribe(); cancel(); <-done }); err != nil {
		cancel()
		return err
	}
	if b.cfg.TurnStreams == 0 {
		return nil
	}
	if err := b.spread(ctx, b.cfg.TurnStreams); err != nil {
		return fmt.Errorf("spread turns over %d streams: %w", b.cfg.TurnStreams, err)
	}
	return nil
}

// Headers of our messages.
const (
	headerSeq   = "Turnpike-Seq"
	headerTrace = "traceparent"
)

// publishTimeout is the time that one attempt to publish waits for the server.
const publishTimeout = 5 * time.Second

// newMsg returns a message with that id, or a random one if it is empty, and a header of
// alternating names and values.
func newMsg(subject string, data []byte, id string, header ...string) *nats.Msg {
	if id == "" {
		id = nuid.Next()
	}
	values := make([]string, 1, 1+len(header)/2)
	values[0] = id
	h := nats.Header{nats.MsgIdHdr: values[:1:1]}
	for i := 0; i < len(header); i += 2 {
		values = append(values, header[i+1])
		h[header[i]] = values[len(values)-1:]
	}
	return &nats.Msg{Subject: subject, Data: data, Header: h}
}

// publish stores one message. After an error it retries, unless no retry can help, always under the same id, so that
// a stream drops duplicates. It begins no attempt after a time limit: a third of the ack wait, but at least 2 s and
// at most 10 s. If no stream answers and elsewhere is not empty, publish sets m.Subject to elsewhere for this and all
// later attempts, and has missing streams created meanwhile; the message may then be stored twice, in two streams.
// Otherwise it creates missing streams before it retries. After an error the message may have been stored.
func (b *Bus) publish(ctx context.Context, m *nats.Msg, elsewhere string) error {
	// Well below the ack wait: the publisher holds a turn message during the call.
	limit := max(2*time.Second, min(10*time.Second, b.cfg.AckWait/3))
	began := time.Now()
	err := b.attempt(ctx, m, elsewhere, limit)
	rest := limit - time.Since(began)
	if err == nil || hopeless(err) || ctx.Err() != nil || rest <= 0 {
		return err
	}
	grow := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(rest),
	)
	return backoff.Retry(func() error {
		err := b.attempt(ctx, m, elsewhere, limit)
		if err != nil && (hopeless(err) || ctx.Err() != nil) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(grow, ctx))
}

func (b *Bus) attempt(ctx context.Context, m *nats.Msg, elsewhere string, limit time.Duration) error {
	err := b.prepare(ctx, m.Subject)
	if err == nil {
		err = b.ask(ctx, m, limit)
	}
	if err != nil {
		b.doubt(m.Subject)
	}
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	// No stream answers: the server may have come back without its data.
	if elsewhere != "" && m.Subject != elsewhere {
		m.Subject = elsewhere
		b.startRestore(ctx)
		return b.attempt(ctx, m, elsewhere, limit)
	}
	repair := b.prepare(ctx, m.Subject)
	if b.tenantOf(m.Subject) == state.DefaultTenant {
		repair = b.restore(ctx)
	}
	if repair != nil {
		b.log.Warn("missing NATS streams not created, this process retries", "error", repair, "hint", createHint)
	}
	return err
}

// createHint is the hint for streams that could not be created.
const createHint = "enable JetStream, permit this account to create streams, and raise max_file_store of NATS if it is used up"

// restoreEvery is the time that restore reuses its last result.
const restoreEvery = 250 * time.Millisecond

// deletionTime is the time that restore waits before it creates a missing stream, and replace
// before it creates one that existed. A server that deletes a stream removes its name first, then
// notifies the pullers, and removes its directory last: a stream of the same name that is created
// in between loses its directory, and then answers no publish (nats-server 2.15, stream.stop).
const deletionTime = 500 * time.Millisecond

// awaitDeletion waits until a server has completed a deletion that this process has just noticed.
func awaitDeletion(ctx context.Context) error {
	t := time.NewTimer(deletionTime)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restore creates missing streams and consumers. Concurrent callers share one attempt: while a
// server elects a leader, no publish finds a stream.
func (b *Bus) restore(ctx context.Context) error {
	select {
	case r := <-b.startRestore(ctx):
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Bus) startRestore(ctx context.Context) <-chan singleflight.Result {
	ctx = context.WithoutCancel(ctx) // the context is that of the first caller
	return b.restoring.DoChan("", func() (any, error) {
		if time.Since(b.restored) < restoreEvery {
			return nil, b.notRestored
		}
		if err := awaitDeletion(ctx); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		_, err := b.learn(ctx)
		b.notRestored = errors.Join(err, b.ensure(ctx))
		b.restored = time.Now()
		return nil, b.notRestored
	})
}

// noJetStream reports whether err means that no server offers JetStream.
func noJetStream(err error) bool {
	if errors.Is(err, nats.ErrNoResponders) {
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code == 503
}

// hopeless reports whether retrying cannot help.
func hopeless(err error) bool {
	for _, fatal := range []error{nats.ErrConnectionClosed, nats.ErrMaxPayload, nats.ErrBadSubject} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code < 500
}

func (b *Bus) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// onClose registers a function for Close to call, concurrently with others. forget removes it again, unless Close has
// begun, so that ended subscriptions do not accumulate. The error is bus.ErrClosed after Close: fn is not called then.
func (b *Bus) onClose(fn func()) (forget func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, bus.ErrClosed
	}
	b.nextID++
	id := b.nextID
	b.open[id] = fn
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, id)
	}, nil
}

// Close ends every queue and subscription, and waits for that. The connection stays open.
func (b *Bus) Close() error {
	b.mu.Lock()
	b.closed = true
	open := b.open
	b.open = map[int]func(){}
	b.mu.Unlock()
	var all sync.WaitGroup
	for _, fn := range open {
		all.Go(fn)
	}
	all.Wait()
	return nil
}
