package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

func (s *Store) treeSubject(root state.RunID) string {
	return s.cfg.Prefix + ".state.tree." + string(root)
}

// Admit implements state.Runs. If an abort arrives between the two reads, it reaches the new runs
// when the run that waits for them ends.
func (s *Store) Admit(ctx context.Context, root state.RunID, runs []state.RunID, limit int) (state.Admitted, error) {
	subject := s.treeSubject(root)
	for range maxConflicts {
		v, _, err := s.read(ctx, root)
		if err != nil {
			return state.Admitted{}, err
		}
		tree, seq, err := s.tree(ctx, subject)
		if err != nil {
			return state.Admitted{}, fmt.Errorf("read descendants of run %s: %w", root, err)
		}
		next, a := v.rec.Admit(tree, runs, limit)
		if len(next) == len(tree) {
			return a, nil
		}
		_, err = s.publish(ctx, subject, next, seq)
		if err == nil {
			return a, nil
		}
		if !conflict(err) {
			return state.Admitted{}, fmt.Errorf("count descendants of run %s: %w", root, err)
		}
	}
	return state.Admitted{}, fmt.Errorf("count descendants of run %s: other processes changed the count %d times in a row: retry", root, maxConflicts)
}

func (s *Store) tree(ctx context.Context, subject string) (tree []state.RunID, seq uint64, err error) {
	m, err := s.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	err = json.Unmarshal(m.Data, &tree)
	return tree, m.Sequence, err
}
