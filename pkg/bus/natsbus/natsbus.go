package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
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
	Domain   string        // of JetStream; default that of the server that is spoken to
	Replicas int           // of each stream; one that exists with fewer is raised; default 1
	AckWait  time.Duration // until an unacknowledged message is delivered again; default 30 s
	Logger   *slog.Logger  // default: no log

	// TurnStreams is over how many streams turns are spread, 1 to 64, each shard to one. A bus that
	// is opened with another number than the deployment has changes it for all processes,
	// which go on meanwhile: nothing is lost, and a message may come twice. 0 leaves it as
	// it is, which is 1 at first.
	TurnStreams int

	// MaxAckPending is how many messages of a queue the server hands out at once, for each
	// stream. 0 is at least 50,000, and more where the slots of the workers that are heard
	// ask for more.
	MaxAckPending int

	// EventFeed gives the deployment a stream with the committed events of all runs, for
	// services that read the bus and not the API. Workers fill it.
	EventFeed bool

	// ReadOnly opens a bus to look at it with Check: Open creates and changes nothing.
	ReadOnly bool

	// Keys sign live events, heartbeats, aborts and the event feed. The same in every process;
	// none sign nothing. SetKeys replaces them.
	Keys Keys

	// Limits of the streams beside that of the turns.
	Limits Limits
}

// Limits bound streams in bytes, and the event feed by its age, so that none of them fills the disk on which the turns
// are. 0 is the default and less than 0 no limit. A stream that exists without a limit, or
// with a lower one, gets it when the bus is opened.
type Limits struct {
	Submit  int64 // submissions over the bus; full, it refuses more; default 512 MiB
	Control int64 // aborts; full, it refuses more; default 64 MiB
	Dead    int64 // dead letters; full, the oldest go; default 256 MiB
	Events  int64 // the event feed; full, the oldest go; default 1 GiB

	EventsAge time.Duration // how long the event feed is kept; default 72 h
}

// minLimit is what a stream must be able to hold.
const minLimit = 1 << 20

func (l Limits) withDefaults() Limits {
	limit := func(asked, byDefault int64) int64 { return max(cmp.Or(asked, byDefault), -1) } // below -1 is nothing that a server knows
	return Limits{limit(l.Submit, 512<<20), limit(l.Control, 64<<20), limit(l.Dead, 256<<20), limit(l.Events, 1<<30), cmp.Or(l.EventsAge, eventsAge)}
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

func (c Config) validate() error {
	var errs []error
	if !prefixes.MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("prefix is %q, want letters, digits, _ and -, in parts joined by dots", c.Prefix))
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		errs = append(errs, fmt.Errorf("replicas is %d, want 1 to 5", c.Replicas))
	}
	if c.AckWait < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("ack wait is %v, want at least 100ms", c.AckWait))
	}
	if c.TurnStreams < 0 || c.TurnStreams > maxTurnStreams {
		errs = append(errs, fmt.Errorf("turn streams is %d, want 1 to %d, or 0 to leave it as it is", c.TurnStreams, maxTurnStreams))
	}
	if c.MaxAckPending < 0 {
		errs = append(errs, fmt.Errorf("max ack pending is %d, want at least 1, or 0 for what the slots of the workers ask for", c.MaxAckPending))
	}
	for _, n := range []int64{c.Limits.Submit, c.Limits.Control, c.Limits.Dead, c.Limits.Events} {
		if n >= 0 && n < minLimit {
			errs = append(errs, fmt.Errorf("the limit of a stream is %d bytes, want at least %d, or less than 0 for none", n, minLimit))
		}
	}
	return errors.Join(errs...)
}

// Bus is a bus.Bus on JetStream.
type Bus struct {
	cfg Config
	nc  *nats.Conn
	js  jetstream.JetStream
	api string // what questions to JetStream begin with
	log *slog.Logger

	answers  *answers
	signer   atomic.Pointer[signer] // nil without keys
	watching watching
	layout   atomic.Pointer[layout]
	hints    chan struct{} // holds a token if the layout may have changed
	slots    slots
	tenants  tenantSet

	turnWrites, intakeWrites writes

	restoring   singleflight.Group // guards the two that follow
	restored    time.Time
	notRestored error

	adopting   sync.Mutex
	turnQueues map[*puller]bus.QueueKey
	intakes    map[*puller]string // by kind

	mu     sync.Mutex
	closed bool
	nextID int
	open   map[int]func() // what Close has to stop
}

var _ bus.Bus = (*Bus)(nil)

// Open creates the streams and consumers that are missing, raises the replicas and
// limits of streams that have less than Config asks for, and returns the bus. A stream or consumer that
// exists with settings on which turns could be lost is refused, with the remedy. Closing
// the bus leaves the connection to its owner.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Bus, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open bus: %w", err)
	}
	js, err := JetStream(nc, cfg.Domain)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	b := &Bus{cfg: cfg, nc: nc, js: js, api: apiPrefix(cfg.Domain), log: cfg.Logger, open: map[int]func(){}, turnQueues: map[*puller]bus.QueueKey{}, intakes: map[*puller]string{}, hints: make(chan struct{}, 1)}
	b.SetKeys(cfg.Keys)
	b.tenants.right, b.tenants.closed = map[string]bool{}, map[string]time.Time{}
	b.slots.asked = cfg.MaxAckPending
	b.layout.Store(oneStream())
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

// begin finds the streams, makes what is missing, and goes by the layout from then on.
func (b *Bus) begin(ctx context.Context) error {
	found, err := b.findLayout(ctx)
	if err == nil {
		b.layout.Store(found)
	}
	if b.cfg.ReadOnly && noJetStream(err) {
		return nil // Check says so
	}
	if unusable := b.ensure(ctx); unusable != nil {
		err = unusable // it says more of a server without JetStream
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
		return fmt.Errorf("spread turns over %d streams: %w: may this process make streams? without TURNPIKE_TURN_STREAMS it uses those that are there", b.cfg.TurnStreams, err)
	}
	return nil
}

func (b *Bus) subject(parts ...string) string {
	all := make([]byte, 0, 128)
	all = append(all, b.cfg.Prefix...)
	for _, p := range parts {
		all = append(append(all, '.'), p...)
	}
	return string(all)
}

// subjectOf is a subject of a tenant; an empty name is the default tenant, whose subjects stand
// where they stood before there were tenants.
func (b *Bus) subjectOf(tenant string, parts ...string) string {
	if tenant == "" || tenant == state.DefaultTenant {
		return b.subject(parts...)
	}
	return b.subject(append([]string{"t", tenant}, parts...)...)
}

// tenantOf is the tenant of a subject.
func (b *Bus) tenantOf(subject string) string {
	rest, ok := strings.CutPrefix(subject, b.cfg.Prefix+".t.")
	if !ok {
		return state.DefaultTenant
	}
	tenant, _, _ := strings.Cut(rest, ".")
	return tenant
}

func (b *Bus) stream(name string) string {
	return strings.ToUpper(strings.ReplaceAll(b.cfg.Prefix, ".", "_")) + "_" + name
}

// token makes a name fit for one part of a subject.
func token(name string) string {
	if name == "" {
		return "_"
	}
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '*' || r == '>' || r <= ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, name)
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// Headers of our messages.
const (
	headerSeq   = "Turnpike-Seq"
	headerTrace = "traceparent"
)

// publishTimeout is how long one attempt to publish waits for the server.
const publishTimeout = 5 * time.Second

// newMsg returns a message with an id, of its own if that is empty, and a header of
// names and values in turn.
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

// publish stores one message. It is sent again while its fate is unknown, always
// under its id, so that the server drops what it has already. Elsewhere, if not empty, is the
// subject to use if no stream answers for that of the message.
func (b *Bus) publish(ctx context.Context, m *nats.Msg, elsewhere string) error {
	// Well below the ack wait: who publishes holds a message meanwhile.
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
	// No stream listens: the server may have come back without its data.
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
		b.log.Warn("streams not restored", "error", repair, "hint", "enable JetStream, and let this account create streams; the process retries")
	}
	return err
}

// ask sends a message once, and waits for what the server says of it.
func (b *Bus) ask(ctx context.Context, m *nats.Msg, limit time.Duration) error {
	p, err := b.answers.send(m)
	if err != nil {
		return err
	}
	return p.wait(ctx, min(publishTimeout, limit))
}

// restoreEvery is for how long an answer of restore is used again.
const restoreEvery = 250 * time.Millisecond

// deletionTime is how long restore waits before it creates a stream that is missing. A server that
// deletes a stream removes its name first, then tells the pullers, and removes its directory last:
// a stream of the same name that is created in between loses its directory, and then answers no
// publish (nats-server 2.15, stream.stop).
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

// restore creates the streams and consumers that are missing. Concurrent callers share one
// attempt: while a server elects a leader, no publish finds a stream.
func (b *Bus) restore(ctx context.Context) error {
	select {
	case r := <-b.startRestore(ctx):
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Bus) startRestore(ctx context.Context) <-chan singleflight.Result {
	ctx = context.WithoutCancel(ctx) // of the first of all who ask
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

// noJetStream reports whether there is nobody who knows of streams.
func noJetStream(err error) bool {
	if errors.Is(err, nats.ErrNoResponders) {
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code == 503
}

// hopeless reports whether sending the same again cannot help.
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

// onClose registers what Close has to stop. The returned function takes it out
// again; without it a subscription would be remembered for ever.
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

// Close ends every queue and subscription. The connection stays open.
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
