package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// NamedRuns returns the runs that the oldest turn messages name, each once, up to limit messages
// of each stream. It takes no message off its queue.
func (b *Bus) NamedRuns(ctx context.Context, limit int) ([]state.RunID, error) {
	l := b.layout.Load()
	seen := map[state.RunID]bool{}
	var runs []state.RunID
	for _, number := range slices.Concat(l.Streams, l.Draining) {
		s, err := b.js.Stream(ctx, b.turnStream(number))
		if isMissing(err) {
			continue // it is not there yet, or was drained
		}
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", b.turnStream(number), err)
		}
		next := s.CachedInfo().State.FirstSeq
		for range limit {
			m, err := s.GetMsg(ctx, next, jetstream.WithGetMsgSubject(">"))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read stream %s: %w", b.turnStream(number), err)
			}
			var t bus.Turn
			if json.Unmarshal(m.Data, &t) == nil && t.Run != "" && !seen[t.Run] {
				seen[t.Run] = true
				runs = append(runs, t.Run)
			}
			next = m.Sequence + 1
		}
	}
	return runs, nil
}
