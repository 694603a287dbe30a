package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/record"
)

// deletedFormat is the format of the message that says that a run was deleted: one that no
// build will ever write.
const deletedFormat = 1 << 20

// deletedFor is how long it is remembered that a run was deleted: as long as another process
// may be behind.
const deletedFor = time.Hour

// Delete implements state.Runs. The last message of the run says that it is gone, so that
// every index forgets it; what came before is removed then, and that message by its age.
// Older builds read it as a run that they must leave alone.
func (s *Store) Delete(ctx context.Context, id state.RunID) error {
	v, _, err := s.read(ctx, id)
	if err != nil {
		return err
	}
	if !v.rec.Status.Terminal() {
		return &state.NotEndedError{ID: id, Status: v.rec.Status}
	}
	gone := change{Op: nats.NewInbox(), Record: record.Record{Header: state.State{ID: id, Format: deletedFormat}}}
	data, err := json.Marshal(gone)
	if err != nil {
		return err
	}
	ack, err := s.js.Publish(ctx, s.runSubject(id), data, jetstream.WithExpectLastSequencePerSubject(v.seq), jetstream.WithMsgTTL(deletedFor))
	if conflict(err) {
		return &state.NotEndedError{ID: id, Status: v.rec.Status} // somebody has continued it meanwhile
	}
	if err != nil {
		return fmt.Errorf("delete run %s: %w", id, err)
	}
	s.forget(id)
	purges := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(s.runSubject(id)), jetstream.WithPurgeSequence(ack.Sequence)}
	if err := s.stream.Purge(ctx, purges...); err != nil {
		return fmt.Errorf("remove run %s: %w", id, err)
	}
	for _, subject := range []string{s.treeSubject(id), v.rec.Key} {
		if subject == "" {
			continue
		}
		if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return fmt.Errorf("remove %s: %w", subject, err)
		}
	}
	return nil
}

func (s *Store) treeSubject(root state.RunID) string {
	return s.cfg.Prefix + ".state.tree." + string(root)
}

// Admit implements state.Runs. An abort that comes between the two reads finds the new runs
// when the one that waits for them ends.
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
	return state.Admitted{}, fmt.Errorf("count descendants of run %s: too many writers at once", root)
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
