package explore

import (
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// checkCheckpoints checks that each checkpoint has the view of the entries before it and names the checkpoint before it,
// that a turn has at most one, and that the header names the last.
func checkCheckpoints(r record.Record, log []state.Entry) error {
	last, version := int64(0), int64(-1)
	at := int64(0)
	for i, e := range log {
		if e.Version > 0 {
			at = e.Version
		}
		if e.Checkpoint == nil {
			continue
		}
		if before, has := sketch(state.View(log[:i])), sketch(e.Checkpoint.Messages); before != has {
			return fmt.Errorf("I5: the checkpoint at entry %d has %s, and the log %s", e.Seq, has, before)
		}
		if e.Checkpoint.Previous != last {
			return fmt.Errorf("I9: the checkpoint at entry %d names %d as the one before it, which is %d", e.Seq, e.Checkpoint.Previous, last)
		}
		if at == version {
			return fmt.Errorf("I9: the turn after version %d has two checkpoints, the second at entry %d", at, e.Seq)
		}
		last, version = e.Seq, at
	}
	if r.Header.Checkpoint != last {
		return fmt.Errorf("I9: the header names the checkpoint %d, and the last is %d", r.Header.Checkpoint, last)
	}
	return nil
}

// sketch returns messages without their ids and times, as a text.
func sketch(messages []state.Message) string {
	text := ""
	for _, m := range messages {
		text += fmt.Sprintln(m.Role, m.Parts)
	}
	return text
}

// checkFork checks that a fork begins with what the model had seen of the run through the turn, and its own input.
func (s *deployment) checkFork(id state.RunID, log []state.Entry) error {
	turn, forked := s.forks[id]
	root, _ := s.root()
	if !forked || s.rolledBack {
		return nil
	}
	source, err := s.store.Snapshot().Log(root)
	if err != nil {
		return err
	}
	var through []state.Message
	for _, m := range state.View(source) {
		if m.Turn <= turn {
			through = append(through, m)
		}
	}
	through = append(through, state.Message{Role: state.RoleUser, Parts: []state.Part{{Type: state.PartText, Text: remark}}})
	if has, want := sketch(state.View(log)), sketch(through); !strings.HasPrefix(has, want) {
		return fmt.Errorf("I5: the fork from turn %d has %s, and must begin with %s", turn, has, want)
	}
	return nil
}
