package natsbus

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Subjects of notices, after the prefix. Watchers announce their runs on subjectWatch, see watchers.go.
const (
	subjectGrown   = "grown"
	subjectDeleted = "deleted"
	subjectLive    = "live"
	subjectWatch   = "watch"
)

// headerTenant names the tenant of a message's run.
const headerTenant = "Turnpike-Tenant"

// NotifyAppended implements bus.Events. A process that tracks watchers sends a notice only if the run is watched,
// or later, if a watch of the run becomes known soon. A watcher that no notice reaches looks at the store itself.
func (b *Bus) NotifyAppended(tenant string, run state.RunID, from, to int64) {
	if w := b.watchers.Load(); w != nil && w.keep(tenant, run, bus.Notice{From: from, To: to}, time.Now()) {
		return
	}
	b.sendAppended(tenant, run, from, to)
}

func (b *Bus) sendAppended(tenant string, run state.RunID, from, to int64) {
	data := strconv.AppendInt(make([]byte, 0, 24), from, 10)
	data = strconv.AppendInt(append(data, ' '), to, 10)
	m := &nats.Msg{Subject: b.subject(subjectGrown, token(string(run))), Header: nats.Header{headerTenant: {tenant}}, Data: data}
	if err := b.nc.PublishMsg(m); err != nil {
		b.log.Debug("hint that a log has grown", "error", err)
	}
}

// PublishLive implements bus.Events.
func (b *Bus) PublishLive(run state.RunID, data []byte) {
	if err := b.publishSigned(b.subject(subjectLive, token(string(run))), data); err != nil {
		b.log.Debug("live event", "error", err)
	}
}

// Watch implements bus.Events.
func (b *Bus) Watch(ctx context.Context, run state.RunID, fn func(bus.Notice)) (func(), error) {
	grown := b.subject(subjectGrown, token(string(run)))
	hearing := b.hearing()
	stop, err := b.listen(ctx, []string{grown, b.subject(subjectLive, token(string(run)))}, func(m *nats.Msg) {
		if m.Subject != grown {
			if hearing.believe(m) {
				fn(bus.Notice{Live: m.Data})
			}
			return
		}
		if n, ok := parseGrown(m.Data); ok {
			fn(n)
		}
	})
	if err != nil {
		return nil, err
	}
	leave := b.announce(string(run))
	return sync.OnceFunc(func() { leave(); stop() }), nil
}

// WatchAll implements bus.Events.
func (b *Bus) WatchAll(ctx context.Context, fn func(string, state.RunID)) (func(), error) {
	stop, err := b.listen(ctx, []string{b.subject(subjectGrown, "*")}, func(m *nats.Msg) {
		if run, err := state.ParseRunID(lastToken(m.Subject)); err == nil {
			fn(m.Header.Get(headerTenant), run)
		}
	})
	if err != nil {
		return nil, err
	}
	leave := b.announce(everyRun)
	return sync.OnceFunc(func() { leave(); stop() }), nil
}

// Deleted implements bus.Intake.
func (b *Bus) Deleted(tenant string, run state.RunID) {
	if err := b.nc.Publish(b.subject(subjectDeleted, token(string(run))), []byte(tenant)); err != nil {
		b.log.Debug("hint that a run is deleted", "error", err)
	}
}

// WatchDeleted implements bus.Events.
func (b *Bus) WatchDeleted(ctx context.Context, fn func(string, state.RunID)) (func(), error) {
	return b.listen(ctx, []string{b.subject(subjectDeleted, "*")}, func(m *nats.Msg) {
		if run, err := state.ParseRunID(lastToken(m.Subject)); err == nil {
			fn(string(m.Data), run)
		}
	})
}

func parseGrown(data []byte) (bus.Notice, bool) {
	from, to, ok := bytes.Cut(data, []byte{' '})
	if !ok {
		return bus.Notice{}, false
	}
	n, errFrom := strconv.ParseInt(string(from), 10, 64)
	m, errTo := strconv.ParseInt(string(to), 10, 64)
	return bus.Notice{From: n, To: m}, errFrom == nil && errTo == nil && 0 <= n && n < m
}
