package state

import "cmp"

// lostMessage explains the end of a run that the store lost.
const lostMessage = "the store has lost the checkpoint of this run, so it cannot continue: submit its input again as a new run"

// Lost returns the replacement of s, a run that the store has lost: a failed run with
// only its end in the log. It keeps what is fixed at submission, the batch and the trace
// context, as far as the caller has them. Versions and log entries start from one again.
func (s State) Lost(at Time, detail string) (State, error) {
	lost := State{
		ID: s.ID, Agent: s.Agent, AgentVersion: s.AgentVersion, Loop: s.Loop, Tenant: cmp.Or(s.Tenant, DefaultTenant), Priority: cmp.Or(s.Priority, Normal),
		Metadata: s.Metadata, Parent: s.Parent, OutputSchema: s.OutputSchema, Variables: s.Variables, Limits: s.Limits, Stream: s.Stream, ReplyTo: s.ReplyTo, Webhook: s.Webhook,
		Status:    Queued, // as its turn message found it; the machine has an edge from there
		CreatedAt: s.CreatedAt, Batch: s.Batch, TraceSpan: s.TraceSpan,
	}
	if lost.CreatedAt.IsZero() {
		lost.CreatedAt = s.ID.MadeAt()
	}
	return lost.Move(EndLost, Entry{At: at, Detail: detail, Error: &Error{Code: string(EndLost), Message: lostMessage}})
}

// LostInBatch returns what is known of a lost run, the one at index in the batch of s; s must have a
// batch. Lost of the result is the run's replacement. The agent is unknown, because the runs of a batch may have
// several. It is also unknown whether the run had started, so the result is Skipped: it implies nothing about the runs
// before it in its lane.
func (s State) LostInBatch(index int) State {
	place := *s.Batch
	place.Index, place.PendingInBatch, place.Skipped, place.LeftLane = index, false, true, false
	return State{ID: s.ID.Plus(index - s.Batch.Index), Tenant: s.Tenant, Priority: s.Priority, CreatedAt: s.CreatedAt, Batch: &place}
}
