package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// NamedRuns returns the runs named by the oldest turn messages, each once. It reads up to limit messages
// of each stream, or all of them if limit is 0. The result all reports whether it has reached the end of every
// stream. NamedRuns removes no message from its queue.
func (ts *turnStreams) NamedRuns(ctx context.Context, limit int) (runs []state.RunID, all bool, err error) {
	seen := map[state.RunID]bool{}
	all, err = ts.eachTurn(ctx, limit, func(_ int, _ *jetstream.RawStreamMsg, t bus.Turn) error {
		if !seen[t.Run] {
			seen[t.Run] = true
			runs = append(runs, t.Run)
		}
		return nil
	})
	return runs, all, err
}

// PendingTurns calls fn, one call at a time, for each unacknowledged turn message. untouched
// means that no worker had received the message when PendingTurns began to read its queue.
// PendingTurns removes no message from its queue. t has no Priority, Noisy and TraceParent.
func (ts *turnStreams) PendingTurns(ctx context.Context, fn func(t bus.Turn, untouched bool)) error {
	delivered := map[string]uint64{} // the last sequence that a consumer has delivered to workers
	_, err := ts.eachTurn(ctx, 0, func(number int, m *jetstream.RawStreamMsg, t bus.Turn) error {
		queue, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, ts.turnSubject(number, "")), ".")
		stream, name := ts.turnStream(number), "workers-"+queue
		upTo, ok := delivered[stream+" "+name]
		if !ok {
			c, err := ts.js.Consumer(ctx, stream, name)
			if err != nil && !isMissing(err) {
				return fmt.Errorf("read consumer %s of %s: %w", name, stream, err)
			}
			if err == nil {
				upTo = c.CachedInfo().Delivered.Stream
			}
			delivered[stream+" "+name] = upTo
		}
		t.Tenant = m.Header.Get(headerTenant)
		fn(t, m.Sequence > upTo)
		return nil
	})
	return err
}

// eachTurn calls fn for each of up to limit turn messages of each stream, by the number of the
// stream; 0 means no limit. It reports whether the streams had no others.
func (ts *turnStreams) eachTurn(ctx context.Context, limit int, fn func(number int, m *jetstream.RawStreamMsg, t bus.Turn) error) (all bool, err error) {
	all = true
	l := ts.layout.Load()
	for _, number := range slices.Concat(l.Streams, l.Draining) {
		s, err := ts.js.Stream(ctx, ts.turnStream(number))
		if isMissing(err) {
			continue // it does not exist yet, or was drained
		}
		if err != nil {
			return false, fmt.Errorf("read stream %s: %w", ts.turnStream(number), err)
		}
		next := s.CachedInfo().State.FirstSeq
		for n := 0; ; {
			m, err := s.GetMsg(ctx, next, jetstream.WithGetMsgSubject(">"))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				return false, fmt.Errorf("read stream %s: %w", ts.turnStream(number), err)
			}
			next = m.Sequence + 1
			var t bus.Turn
			if json.Unmarshal(m.Data, &t) != nil || t.Run == "" {
				continue // a probe
			}
			if limit > 0 && n == limit {
				all = false
				break
			}
			n++
			if err := fn(number, m, t); err != nil {
				return false, err
			}
		}
	}
	return all, nil
}
