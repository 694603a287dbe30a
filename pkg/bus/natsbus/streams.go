package natsbus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Settings of the queues.
const (
	maxWaiting    = 8192 // workers that may wait for a turn at once; fixed once a consumer exists
	intakeWaiting = 512
	intakePending = 10_000
	intakeBuffer  = 8192            // messages of the intake received and not yet delivered: one per tenant
	remembered    = 2 * time.Minute // the time for which the server remembers the id of a message
	eventsAge     = 72 * time.Hour
)

// streams returns the configuration of all streams, except those that are draining.
func (b *Bus) streams() []jetstream.StreamConfig {
	l := b.layout.Load()
	var all []jetstream.StreamConfig
	for _, number := range l.Streams {
		all = append(all, b.turns(number))
	}
	if l.revision > 0 {
		all = append(all, b.layoutStream())
	}
	return append(append(all, b.stickyStream()), b.defaultStreams()...)
}

// turns returns a stream of turns.
func (conn *connection) turns(number int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: conn.turnStream(number), Subjects: []string{conn.turnSubject(number, ">")},
		Storage: jetstream.FileStorage, Replicas: conn.cfg.Replicas, Duplicates: remembered, AllowDirect: true, AllowMsgTTL: true,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxMsgSize: 64 << 10,
	}
}

// defaultStreams returns the streams of the default tenant, which every deployment has.
func (conn *connection) defaultStreams() []jetstream.StreamConfig {
	base := jetstream.StreamConfig{Storage: jetstream.FileStorage, Replicas: conn.cfg.Replicas, Duplicates: remembered, AllowDirect: true}
	queue, events, dead := base, base, base
	queue.Retention, queue.Discard = jetstream.WorkQueuePolicy, jetstream.DiscardNew
	submit, control := queue, queue
	submit.Name, submit.Subjects = conn.stream(kindSubmit), []string{conn.subject("submit", "*")}
	control.Name, control.Subjects = conn.stream(kindControl), []string{conn.subject("abort", "*")}
	events.Name, events.Subjects = conn.stream(kindEvents), []string{conn.subject("events", "*")}
	events.Retention, events.Discard, events.MaxAge = jetstream.LimitsPolicy, jetstream.DiscardOld, conn.cfg.Limits.EventsAge
	events.Duplicates = min(remembered, events.MaxAge) // NATS refuses to remember ids longer than messages
	dead.Name, dead.Subjects = conn.stream(kindDead), []string{conn.subject("dead", "*")}
	submit.MaxBytes, control.MaxBytes, dead.MaxBytes, events.MaxBytes = conn.cfg.Limits.Submit, conn.cfg.Limits.Control, conn.cfg.Limits.Dead, conn.cfg.Limits.Events
	all := []jetstream.StreamConfig{submit, control, dead}
	if conn.cfg.EventFeed {
		all = append(all, events)
	}
	return all
}

// consumerSpec is the configuration of a durable consumer.
type consumerSpec struct {
	stream string
	config jetstream.ConsumerConfig

	exactly bool // MaxAckPending is exact rather than a minimum

	tenant, kind string // of the intake
}

// queue returns the consumer of a queue in a stream. Filters on a work queue must not overlap: each
// queue has its own word.
func (ts *turnStreams) queue(number int, key bus.QueueKey) consumerSpec {
	pending, exactly := ts.slots.pending()
	return consumerSpec{stream: ts.turnStream(number), config: jetstream.ConsumerConfig{
		Durable: "workers-" + key.String(), FilterSubject: ts.turnSubject(number, key.String(), ">"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ts.cfg.AckWait, MaxDeliver: -1, MaxAckPending: pending, MaxWaiting: maxWaiting,
	}, exactly: exactly}
}

// gateway returns the consumer that gateways share in a stream of the intake.
func (conn *connection) gateway(tenant, kind string) consumerSpec {
	return consumerSpec{stream: conn.streamOf(tenant, kind), config: jetstream.ConsumerConfig{
		Durable: "gateway", AckPolicy: jetstream.AckExplicitPolicy, AckWait: conn.cfg.AckWait, MaxDeliver: -1,
		MaxAckPending: intakePending, MaxWaiting: intakeWaiting,
	}, tenant: tenant, kind: kind}
}

func (b *Bus) consumers() []consumerSpec {
	specs := []consumerSpec{b.gateway(state.DefaultTenant, kindSubmit), b.gateway(state.DefaultTenant, kindControl)}
	for _, number := range b.layout.Load().Streams {
		for _, key := range bus.QueueKeys() {
			specs = append(specs, b.queue(number, key))
		}
	}
	return append(specs, b.stickies.all()...)
}

// ensure creates the missing streams of turns and of the default tenant's submissions, aborts, dead letters and (with
// EventFeed) events, with their consumers. It refuses settings that could lose messages, except those that it can
// change itself: it tries to raise replicas and size limits, and to correct the age of events and the changeable
// settings of consumers. If it cannot change a stream, it only logs that; for a consumer it returns the error. It only
// reads those with correct settings, so that a worker needs no permission to create or change. With Config.ReadOnly it
// does nothing.
func (b *Bus) ensure(ctx context.Context) error {
	if b.cfg.ReadOnly {
		return nil
	}
	for _, want := range b.streams() {
		if err := b.ensureStream(ctx, want); err != nil {
			return err
		}
	}
	b.limit(ctx)
	return b.ensureConsumers(ctx, b.consumers())
}

// ensureTurns creates streams of turns, with their consumers.
func (ts *turnStreams) ensureTurns(ctx context.Context, numbers []int) error {
	var specs []consumerSpec
	for _, number := range numbers {
		if err := ts.ensureStream(ctx, ts.turns(number)); err != nil {
			return err
		}
		for _, key := range bus.QueueKeys() {
			specs = append(specs, ts.queue(number, key))
		}
	}
	return ts.ensureConsumers(ctx, specs)
}

// sideBySide is the maximum number of concurrent requests about consumers.
const sideBySide = 8

// enough reports whether MaxAckPending is high enough. -1 means no limit.
func (s consumerSpec) enough(have int) bool {
	want := s.config.MaxAckPending
	return have == want || !s.exactly && (have < 0 || have > want)
}

// settingError reports a setting of a stream or consumer that could lose messages.
type settingError struct{ fact, remedy string }

func (e *settingError) Error() string { return e.fact + ": " + e.remedy }

// differs returns an error that names the first setting of a stream that could lose messages, and
// the remedy.
func differs(want, have jetstream.StreamConfig) error {
	queue := want.Retention == jetstream.WorkQueuePolicy
	wrong := func(setting string, is, should any) error {
		remedy := "stop what publishes to it, wait until the stream is empty, delete it with `nats stream rm %[1]s`, and restart a gateway: it creates the stream"
		if !queue {
			remedy = "save its messages with `nats stream backup %[1]s DIRECTORY`, delete it with `nats stream rm %[1]s`, and restart a gateway: it creates an empty stream"
		}
		return &settingError{
			fmt.Sprintf("stream %s: the setting %s is %v instead of %v", want.Name, setting, is, should),
			fmt.Sprintf("change the setting with `nats stream edit %[1]s`; if NATS refuses, "+remedy, want.Name),
		}
	}
	switch {
	case have.Retention != want.Retention:
		return wrong("retention", have.Retention, want.Retention)
	case have.MaxAge != 0 && want.MaxAge == 0:
		return wrong("max age", have.MaxAge, "unlimited")
	case queue && have.Discard != jetstream.DiscardNew:
		return wrong("discard policy", have.Discard, jetstream.DiscardNew)
	case have.MaxMsgsPerSubject > 0:
		return wrong("max messages per subject", have.MaxMsgsPerSubject, "unlimited")
	case have.NoAck:
		return wrong("no ack", true, false)
	case have.Sealed:
		return wrong("sealed", true, false)
	case have.Duplicates < time.Second:
		return wrong("duplicate window", have.Duplicates, want.Duplicates)
	case want.AllowMsgTTL && !have.AllowMsgTTL:
		return wrong("allow message TTL", false, true)
	case have.Storage != want.Storage:
		return wrong("storage", have.Storage, want.Storage)
	case !slices.Equal(slices.Sorted(slices.Values(have.Subjects)), want.Subjects):
		return wrong("subjects", have.Subjects, want.Subjects)
	default:
		return nil
	}
}

// differsFixed does the same for consumer settings that cannot be changed.
func differsFixed(want consumerSpec, have jetstream.ConsumerConfig) error {
	name := want.config.Durable
	wrong := func(setting string, is, should any) error {
		return &settingError{
			fmt.Sprintf("consumer %s of %s: the setting %s is %v instead of %v", name, want.stream, setting, is, should),
			fmt.Sprintf("stop all workers and gateways, and delete it with `nats consumer rm %s %s`; their next start creates it again, and no message is lost", want.stream, name),
		}
	}
	switch {
	case have.AckPolicy != want.config.AckPolicy:
		return wrong("ack policy", have.AckPolicy, want.config.AckPolicy)
	case have.FilterSubject != want.config.FilterSubject || len(have.FilterSubjects) > 0:
		return wrong("filter", fmt.Sprint(have.FilterSubject, have.FilterSubjects), want.config.FilterSubject)
	case have.DeliverSubject != "":
		return wrong("delivery", "push", "pull")
	case have.MaxWaiting < want.config.MaxWaiting:
		return wrong("max waiting", have.MaxWaiting, want.config.MaxWaiting)
	case len(have.BackOff) > 0:
		return wrong("back-off", have.BackOff, "none")
	case have.MaxRequestExpires > 0 && have.MaxRequestExpires < pullExpiry:
		return wrong("max request expires", have.MaxRequestExpires, "unlimited")
	default:
		return nil
	}
}
