package state

import (
	"fmt"
	"slices"
)

// History is what a run can start from: the messages of another run, and the facts that its loop
// had published.
type History struct {
	Messages []Message
	Turn     int
	Facts    Facts
}

// ForkSource is the run and the turn through which a fork shares its history. Changed lists in
// words what the fork changes in it.
type ForkSource struct {
	RunID   RunID    `json:"run_id"`
	Turn    int      `json:"turn"`
	Changed []string `json:"changed,omitempty"`
}

// HistoryThrough returns the history of a log through a turn: it includes the responses of
// the turn and the results of their calls, and nothing later. Turn 0 is the submission. It
// returns an error if turn is negative or higher than that of the last response, or if a call of the
// turn's last response has no result yet.
//
// A log that begins with a checkpoint must begin with one of an earlier turn than the given one. HistoryThrough
// does not check that: it would return what the model saw at the checkpoint.
func HistoryThrough(log []Entry, turn int) (History, error) {
	h := History{Turn: turn}
	end, last := 0, 0
	if c := CheckpointOf(log); c != nil {
		last = log[0].Turn
		h.Facts.Confidence = c.Confidence
	}
	for i, e := range log {
		switch e.Type {
		case EntryModel:
			last = max(last, e.Turn)
			fallthrough
		case EntryTool, EntryReused, EntryReflect, EntryHandoff, EntryTombstoned:
			if e.Turn <= turn {
				end = i
			}
		default:
		}
	}
	if turn < 0 || turn > last {
		return History{}, fmt.Errorf("turn %d does not exist: name a turn from 0 to %d", turn, last)
	}
	if len(log) == 0 {
		return h, nil
	}
	response := 0
	open := map[string]bool{} // by the id of a call of the last response
	for i := range log[:end+1] {
		e := &log[i]
		switch e.Type {
		case EntryModel:
			response = i
			clear(open)
			for _, c := range e.Message.Calls() {
				open[c.ID] = true
			}
		case EntryTool, EntryReused:
			delete(open, e.CallID)
		case EntryTombstoned:
			reopen(open, log[response:i], e.MessageIDs)
		case EntryReflect:
			h.Facts.Confidence = e.Confidence
		default:
		}
	}
	if len(open) > 0 {
		return History{}, fmt.Errorf("turn %d: %d of its tool calls have no result yet: wait for them while the run is active, or name an earlier turn", turn, len(open))
	}
	h.Messages = View(log[:end+1])
	return h, nil
}

// reopen applies a withdrawal to the open calls of the response that the entries begin with: a replay
// withdraws results, and a rollback the response with all of them.
func reopen(open map[string]bool, entries []Entry, ids []string) {
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Message == nil || !slices.Contains(ids, e.Message.ID):
		case e.Type == EntryModel:
			clear(open)
			return
		case e.CallID != "":
			open[e.CallID] = true
		}
	}
}
