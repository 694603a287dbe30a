package state

import "fmt"

// History is what a run can start from: the messages of another run, and the facts that its loop
// had published.
type History struct {
	Messages []Message
	Turn     int
	Facts    Facts
}

// HistoryThrough returns the history of a log through a turn: it includes the responses of
// the turn and the results of their calls, and nothing later. Turn 0 is the submission. It
// returns an error if the run has not reached the turn, or if a call of the turn has no
// result yet.
func HistoryThrough(log []Entry, turn int) (History, error) {
	h := History{Turn: turn}
	end, last := 0, 0
	for i, e := range log {
		switch e.Type {
		case EntryModel:
			last = max(last, e.Turn)
			fallthrough
		case EntryTool, EntryReused, EntryReflect, EntryHandoff:
			if e.Turn <= turn {
				end = i
			}
		default:
		}
	}
	if turn < 0 || turn > last {
		return History{}, fmt.Errorf("turn %d: the run has turns 0 to %d", turn, last)
	}
	if len(log) == 0 {
		return h, nil
	}
	open := 0
	for _, e := range log[:end+1] {
		switch e.Type {
		case EntryModel:
			open = len(e.Message.Calls())
		case EntryTool, EntryReused:
			open--
		case EntryTombstoned:
			if e.Message == nil {
				open += len(e.MessageIDs) // results that a replay withdrew
			}
		case EntryReflect:
			h.Facts.Confidence = e.Confidence
		default:
		}
	}
	if open > 0 {
		return History{}, fmt.Errorf("turn %d: %d of its tool calls have no result yet", turn, open)
	}
	h.Messages = View(log[:end+1])
	return h, nil
}
