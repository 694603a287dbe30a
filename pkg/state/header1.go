package state

import (
	"encoding/json"

	"github.com/turnpike-dev/turnpike/pkg/state/internal/wire"
)

// A header of format 1 is one object. Of what a loop keeps it has a phase, a word, and
// nothing else.

// header1 is a header of format 1 as encoding/json reads it.
type header1 struct {
	plain
	Confidence *float64 `json:"confidence"`
	Phase      string   `json:"phase"`
}

func (h *header1) state() State {
	s := State(h.plain)
	s.Facts.Confidence, s.LoopState = h.Confidence, ofPhase(h.Phase)
	return s
}

// ofPhase returns what a loop finds of the phase that a header of format 1 has.
func ofPhase(phase string) LoopState {
	if phase == "" {
		return LoopState{}
	}
	w := encoder{wire.Writer{B: []byte{'{'}}}
	w.Text(`"phase":`, phase)
	w.Close()
	return LoopState{Data: json.RawMessage(w.B)}
}

// phase returns what format 1 can hold of l, and whether that is all of it.
func (l LoopState) phase() (phase string, all bool) {
	if l.IsZero() {
		return "", true
	}
	if l.Version != 0 {
		return "", false
	}
	var r wire.Reader
	r.Begin(string(l.Data))
	r.Must(`{"phase":`)
	phase = r.Text()
	r.Must(`}`)
	return phase, r.Done() && phase != ""
}

// first writes a header of format 1.
func (w *encoder) first(s *State) {
	phase, _ := s.LoopState.phase()
	w.Num(`"format":`, int64(s.Format))
	w.Text(`"id":`, string(s.ID))
	w.Text(`"agent":`, s.Agent)
	w.Num(`"agent_version":`, int64(s.AgentVersion))
	w.Text(`"loop":`, s.Loop)
	w.Text(`"tenant":`, s.Tenant)
	w.Text(`"priority":`, string(s.Priority))
	w.Any(`"metadata":`, s.Metadata, len(s.Metadata) > 0)
	w.Any(`"parent":`, s.Parent, s.Parent != nil)
	w.Any(`"batch":`, s.Batch, s.Batch != nil)
	w.Text(`"status":`, string(s.Status))
	w.Key(`"transition":`)
	w.transition(&s.Transition)
	w.Num(`"turn":`, int64(s.Turn))
	w.Num(`"version":`, s.Version)
	if s.Output != nil {
		w.Text(`"output":`, *s.Output)
	}
	w.Any(`"structured_output":`, s.StructuredOutput, len(s.StructuredOutput) > 0)
	w.Any(`"output_schema":`, s.OutputSchema, len(s.OutputSchema) > 0)
	w.Any(`"error":`, s.Error, s.Error != nil)
	w.Any(`"confidence":`, s.Facts.Confidence, s.Facts.Confidence != nil)
	w.Any(`"waiting":`, s.Waiting, s.Waiting != nil)
	w.Any(`"open":`, s.Open, len(s.Open) > 0)
	w.YesOr(`"cleared":`, s.Cleared)
	w.YesOr(`"undecided":`, s.Undecided)
	w.TextOr(`"phase":`, phase)
	w.TimeOr(`"resume_at":`, s.ResumeAt.Time)
	w.Any(`"place":`, s.Reservation, s.Reservation != nil)
	w.Key(`"usage":`)
	w.usage(&s.Usage)
	w.Key(`"limits":`)
	w.limits(&s.Limits)
	w.Any(`"warned":`, s.Warned, len(s.Warned) > 0)
	w.NumOr(`"turn_base":`, int64(s.TurnBase))
	w.YesOr(`"reenter":`, s.Reenter)
	w.NumOr(`"failures":`, int64(s.Failures))
	w.NumOr(`"recoveries":`, int64(s.Recoveries))
	w.YesOr(`"compacted":`, s.Compacted)
	w.NumOr(`"stop_blocks":`, int64(s.StopBlocks))
	w.NumOr(`"fallback":`, int64(s.Fallback))
	w.NumOr(`"fallback_base":`, int64(s.FallbackBase))
	if s.Nudges != (Nudges{}) { // as an argument it would be on the heap, there or not
		w.Any(`"nudges":`, s.Nudges, true)
	}
	w.Any(`"poison":`, s.Poison, s.Poison != nil)
	w.NumOr(`"asked":`, int64(s.Asked))
	w.TextOr(`"stream":`, s.Stream)
	w.TextOr(`"reply_to":`, s.ReplyTo)
	w.Any(`"webhook":`, s.Webhook, s.Webhook != nil)
	w.TextOr(`"trace_parent":`, s.TraceSpan)
	w.Time(`"created_at":`, s.CreatedAt.Time)
	w.Time(`"started_at":`, s.StartedAt.Time)
	w.Time(`"updated_at":`, s.UpdatedAt.Time)
	w.Time(`"finished_at":`, s.FinishedAt.Time)
}

func (w *encoder) transition(t *Transition) {
	w.Open()
	w.Text(`"reason":`, string(t.Reason))
	w.Text(`"detail":`, t.Detail)
	w.Num(`"turn":`, int64(t.Turn))
	w.Num(`"version":`, t.Version)
	w.Time(`"at":`, t.At.Time)
	w.Close()
}

func (w *encoder) limits(l *Limits) {
	w.Open()
	w.NumOr(`"max_turns":`, int64(l.MaxTurns))
	w.NumOr(`"output_tokens":`, l.OutputTokens)
	w.NumOr(`"total_tokens":`, l.TotalTokens)
	w.Any(`"cost_usd":`, l.CostUSD, l.CostUSD != 0)
	w.TimeOr(`"deadline_at":`, l.DeadlineAt.Time)
	w.NumOr(`"wait_ms":`, l.WaitMS)
	w.NumOr(`"runs":`, int64(l.Runs))
	w.Any(`"warn_at":`, l.WarnAt, l.WarnAt != 0)
	w.Close()
}

// first reads what encoder.first writes.
func (d *decoder) first(s *State) {
	d.Must(`{"format":`)
	s.Format = d.Int()
	d.Must(`,"id":`)
	s.ID = RunID(d.Text())
	d.Must(`,"agent":`)
	s.Agent = d.Text()
	d.Must(`,"agent_version":`)
	s.AgentVersion = d.Int()
	d.Must(`,"loop":`)
	s.Loop = d.Text()
	d.Must(`,"tenant":`)
	s.Tenant = d.Text()
	d.Must(`,"priority":`)
	s.Priority = Priority(d.Text())
	wire.AnyOr(&d.Reader, `,"metadata":`, &s.Metadata)
	wire.AnyOr(&d.Reader, `,"parent":`, &s.Parent)
	wire.AnyOr(&d.Reader, `,"batch":`, &s.Batch)
	d.Must(`,"status":`)
	s.Status = Status(d.Text())
	d.Must(`,"transition":`)
	d.transition(&s.Transition)
	d.Must(`,"turn":`)
	s.Turn = d.Int()
	d.Must(`,"version":`)
	s.Version = d.Num()
	if d.Key(`,"output":`) {
		text := d.Text()
		s.Output = &text
	}
	d.RawOr(`,"structured_output":`, &s.StructuredOutput)
	d.RawOr(`,"output_schema":`, &s.OutputSchema)
	wire.AnyOr(&d.Reader, `,"error":`, &s.Error)
	wire.AnyOr(&d.Reader, `,"confidence":`, &s.Facts.Confidence)
	wire.AnyOr(&d.Reader, `,"waiting":`, &s.Waiting)
	wire.AnyOr(&d.Reader, `,"open":`, &s.Open)
	d.YesOr(`,"cleared":`, &s.Cleared)
	d.YesOr(`,"undecided":`, &s.Undecided)
	phase := ""
	wire.TextOr(&d.Reader, `,"phase":`, &phase)
	s.LoopState = ofPhase(phase)
	d.TimeOr(`,"resume_at":`, &s.ResumeAt.Time)
	wire.AnyOr(&d.Reader, `,"place":`, &s.Reservation)
	d.Must(`,"usage":`)
	d.usage(&s.Usage)
	if d.Key(`,"limits":{"max_turns":`) { // every run has it
		d.limits(&s.Limits)
	} else {
		wire.AnyOr(&d.Reader, `,"limits":`, &s.Limits)
	}
	wire.AnyOr(&d.Reader, `,"warned":`, &s.Warned)
	d.IntOr(`,"turn_base":`, &s.TurnBase)
	d.YesOr(`,"reenter":`, &s.Reenter)
	d.IntOr(`,"failures":`, &s.Failures)
	d.IntOr(`,"recoveries":`, &s.Recoveries)
	d.YesOr(`,"compacted":`, &s.Compacted)
	d.IntOr(`,"stop_blocks":`, &s.StopBlocks)
	d.IntOr(`,"fallback":`, &s.Fallback)
	d.IntOr(`,"fallback_base":`, &s.FallbackBase)
	wire.AnyOr(&d.Reader, `,"nudges":`, &s.Nudges)
	wire.AnyOr(&d.Reader, `,"poison":`, &s.Poison)
	d.IntOr(`,"asked":`, &s.Asked)
	wire.TextOr(&d.Reader, `,"stream":`, &s.Stream)
	wire.TextOr(&d.Reader, `,"reply_to":`, &s.ReplyTo)
	wire.AnyOr(&d.Reader, `,"webhook":`, &s.Webhook)
	wire.TextOr(&d.Reader, `,"trace_parent":`, &s.TraceSpan)
	d.Must(`,"created_at":`)
	s.CreatedAt = Time{d.Time()}
	d.Must(`,"started_at":`)
	s.StartedAt = Time{d.Time()}
	d.Must(`,"updated_at":`)
	s.UpdatedAt = Time{d.Time()}
	d.Must(`,"finished_at":`)
	s.FinishedAt = Time{d.Time()}
	d.Must(`}`)
}

func (d *decoder) transition(t *Transition) {
	d.Must(`{"reason":`)
	t.Reason = Reason(d.Text())
	d.Must(`,"detail":`)
	t.Detail = d.Text()
	d.Must(`,"turn":`)
	t.Turn = d.Int()
	d.Must(`,"version":`)
	t.Version = d.Num()
	d.Must(`,"at":`)
	t.At = Time{d.Time()}
	d.Must(`}`)
}

func (d *decoder) limits(l *Limits) {
	l.MaxTurns = d.Int()
	d.NumOr(`,"output_tokens":`, &l.OutputTokens)
	d.NumOr(`,"total_tokens":`, &l.TotalTokens)
	if d.Key(`,"cost_usd":`) {
		d.dollars(&l.CostUSD)
	}
	d.TimeOr(`,"deadline_at":`, &l.DeadlineAt.Time)
	d.NumOr(`,"wait_ms":`, &l.WaitMS)
	if d.Key(`,"runs":`) {
		l.Runs = d.Int()
	}
	wire.AnyOr(&d.Reader, `,"warn_at":`, &l.WarnAt)
	d.Must(`}`)
}
