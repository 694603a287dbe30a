package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// readyFresh is the time that Ready and IntakeReady repeat their answer: any client may request
	// it, and each write goes to all replicas.
	readyFresh = 500 * time.Millisecond

	// intakeFresh is the time that IntakeReady repeats that it found no fault. Together with
	// maxProbes it bounds the writes: a gateway makes at most 13 a second, and has probed the 2,000
	// streams of 1,000 tenants after 32 checks.
	intakeFresh = 5 * time.Second

	// maxProbes is the maximum number of streams that one check probes.
	maxProbes = 64

	// headerProbe marks a message to a stream of the intake that only tests whether the stream accepts
	// it. The bus of a gateway acknowledges such messages, and delivers none.
	headerProbe = "Turnpike-Probe"

	// probeName is the last token of a probe's subject.
	probeName = "ready"
)

// intakeWords maps the kind of a stream to the word of the subjects that its clients publish to.
var intakeWords = map[string]string{kindSubmit: "submit", kindControl: "abort"}

// target is a stream that must accept writes: one of turns, by its number, or one of a tenant's intake,
// by its kind.
type target struct {
	turns        int
	tenant, kind string
}

// writes records which streams of one purpose accept writes. A server whose disk is full answers reads,
// so only a stored message counts: one that this process published, or a probe.
type writes struct {
	mu     sync.Mutex
	of     map[target]written
	until  time.Time // the answer is valid until then
	answer error
}

type written struct {
	stored time.Time // time of the latest stored message
	doubt  bool      // a publish failed since: the next check probes the stream first
	err    error     // of the latest probe
}

// fails reports whether the stream probably accepts no writes.
func (s written) fails() bool { return s.doubt || s.err != nil }

// note records the result of a publish. A failure alone proves nothing, because its cause may be the
// message, or a caller that does not wait.
func (w *writes) note(t target, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[target]written{}
	}
	if err == nil {
		w.of[t] = written{stored: time.Now()}
		return
	}
	s := w.of[t]
	s.doubt = true
	w.of[t] = s
	w.until = time.Time{}
}

// latest returns the latest answer if it is still valid.
func (w *writes) latest() (answer error, holds bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answer, time.Now().Before(w.until)
}

// choose returns the streams to probe: those that failed, then those that have stored nothing for the
// longest time. It drops streams that are not in all.
func (w *writes) choose(all []target) []target {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := make(map[target]written, len(all))
	var chosen []target
	for _, t := range all {
		s := w.of[t]
		known[t] = s
		if s.fails() || time.Since(s.stored) >= readyFresh {
			chosen = append(chosen, t)
		}
	}
	w.of = known
	slices.SortStableFunc(chosen, func(a, b target) int {
		x, y := known[a], known[b]
		if x.fails() != y.fails() {
			if x.fails() {
				return -1
			}
			return 1
		}
		return x.stored.Compare(y.stored)
	})
	return chosen[:min(len(chosen), maxProbes)]
}

// probed records the result of a probe.
func (w *writes) probed(t target, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, known := w.of[t]
	switch {
	case !known: // another check has found that the deployment no longer has it
	case err == nil:
		w.of[t] = written{stored: time.Now()}
	default:
		s.doubt, s.err = false, err
		w.of[t] = s
	}
}

// verdict returns the error of the first stream that accepts no writes. The result stays valid for a
// while; for fresh if there is no error.
func (w *writes) verdict(all []target, fresh time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = nil
	for _, t := range all {
		if err := w.of[t].err; err != nil {
			w.answer, fresh = err, readyFresh
			break
		}
	}
	w.until = time.Now().Add(fresh)
	return w.answer
}

// Ready implements bus.Bus. It writes to streams of turns. No consumer reads the messages, and the
// server removes each after a second.
func (b *Bus) Ready(ctx context.Context) error {
	var all []target
	for _, number := range b.layout.Load().Streams {
		all = append(all, target{turns: number})
	}
	return b.takeWrites(ctx, &b.turnWrites, all, readyFresh)
}

// IntakeReady implements bus.Intake. It writes to the streams of some tenants, and the next time to
// those of others.
func (b *Bus) IntakeReady(ctx context.Context) error {
	var all []target
	for _, kind := range intakeKinds {
		for _, spec := range b.intakeSpecs(kind) {
			all = append(all, target{tenant: spec.tenant, kind: kind})
		}
	}
	return b.takeWrites(ctx, &b.intakeWrites, all, intakeFresh)
}

// takeWrites returns an error if one of these streams is known to accept no writes, after it has probed
// some of them.
func (b *Bus) takeWrites(ctx context.Context, w *writes, all []target, fresh time.Duration) error {
	if b.isClosed() {
		return bus.ErrClosed
	}
	if !b.nc.IsConnected() {
		return errors.New("this process is not connected to NATS: start NATS, or repair the network; the process reconnects")
	}
	if answer, holds := w.latest(); holds {
		return answer
	}
	var probes sync.WaitGroup
	for _, t := range w.choose(all) {
		probes.Go(func() {
			if err := b.probe(ctx, t); err == nil || !errors.Is(ctx.Err(), context.Canceled) {
				w.probed(t, err)
			}
		})
	}
	probes.Wait()
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the caller no longer waits
	}
	return w.verdict(all, fresh)
}

// probe writes to one stream.
func (b *Bus) probe(ctx context.Context, t target) error {
	m, stream := nats.NewMsg(b.turnSubject(t.turns, probeName)), b.turnStream(t.turns)
	m.Header.Set(jetstream.MsgTTLHeader, time.Second.String())
	if t.kind != "" {
		m, stream = nats.NewMsg(b.subjectOf(t.tenant, intakeWords[t.kind], probeName)), b.streamOf(t.tenant, t.kind)
		m.Header.Set(headerProbe, "1")
	}
	_, err := b.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(1))
	if errors.Is(err, jetstream.ErrNoStreamResponse) && b.isUnused(ctx, t) {
		return nil
	}
	if _, answered := errors.AsType[jetstream.JetStreamError](err); answered {
		err = fmt.Errorf("%w: %w", check.ErrNoWrites, err)
	}
	if err != nil {
		return fmt.Errorf("write to stream %s: %w", stream, err)
	}
	return nil
}

// isUnused reports whether another process has made a stream unused, which this process has not noticed
// yet: it has spread the turns over fewer streams, or has closed the tenant or deleted its stream.
func (b *Bus) isUnused(ctx context.Context, t target) bool {
	if t.kind == "" {
		_, err := b.learn(ctx)
		return err == nil && b.isDrained(b.turnStream(t.turns))
	}
	if t.tenant == state.DefaultTenant {
		return false
	}
	s, err := b.js.Stream(ctx, b.streamOf(t.tenant, t.kind))
	return errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && slices.Equal(s.CachedInfo().Config.Subjects, b.closedTenant(t.tenant, t.kind))
}

// isProbe reports whether a message of the intake only tests its stream.
func isProbe(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get(headerProbe) != "" }
