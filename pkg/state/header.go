package state

import "github.com/turnpike-dev/turnpike/internal/state/wire"

// A header has two parts: one fixed at submission, one that turns change. A store that keeps them
// separate writes the first one once. The encoder omits empty fields and those that repeat another
// field.

// plain is a State without its methods, for encoding/json.
type plain State

// header is the form in which encoding/json reads and writes a header: one part, or both.
type header struct {
	plain
	Transition transition `json:"transition"`
	Usage      totals     `json:"usage"`
}

// transition omits the turn, version and time if they are those of the header, as they usually are.
type transition struct {
	Reason  Reason       `json:"reason"`
	Detail  string       `json:"detail,omitempty"`
	Turn    *int         `json:"turn,omitempty"`
	Version *int64       `json:"version,omitempty"`
	At      optionalTime `json:"at,omitzero"`
}

// optionalTime distinguishes a null time from a missing one.
type optionalTime struct {
	Time
	there bool
}

// IsZero reports whether the time is missing.
func (t optionalTime) IsZero() bool { return !t.there }

func (t *optionalTime) UnmarshalJSON(b []byte) error {
	t.there = true
	return t.Time.UnmarshalJSON(b)
}

type totals struct {
	In    int64     `json:"in"`
	Out   int64     `json:"out,omitempty"`
	Read  int64     `json:"cache_read,omitempty"`
	Write int64     `json:"cache_write,omitempty"`
	Calls int64     `json:"calls,omitempty"`
	Tools int64     `json:"tools,omitempty"`
	Cost  *MicroUSD `json:"cost,omitempty"`
	Guess bool      `json:"estimated,omitempty"`
}

func (h *header) state() State {
	s, t, u := State(h.plain), h.Transition, h.Usage
	s.Transition = Transition{Reason: t.Reason, Detail: t.Detail, Turn: s.Turn, Version: s.Version, At: s.UpdatedAt}
	if t.Turn != nil {
		s.Transition.Turn = *t.Turn
	}
	if t.Version != nil {
		s.Transition.Version = *t.Version
	}
	if t.At.there {
		s.Transition.At = t.At.Time
	}
	s.Usage = Usage{
		InputTokens: u.In, OutputTokens: u.Out, CacheReadTokens: u.Read, CacheWriteTokens: u.Write, ModelCalls: u.Calls, ToolCalls: u.Tools, CostUSD: u.Cost,
		Estimated: u.Guess,
	}
	return s
}

// fixed writes the part that is fixed at submission.
func (w *encoder) fixed(s *State) {
	w.Text(`"id":`, string(s.ID))
	w.Text(`"agent":`, s.Agent)
	w.Num(`"agent_version":`, int64(s.AgentVersion))
	w.Text(`"loop":`, s.Loop)
	w.Text(`"tenant":`, s.Tenant)
	w.Text(`"priority":`, string(s.Priority))
	w.Any(`"metadata":`, s.Metadata, len(s.Metadata) > 0)
	w.Any(`"parent":`, s.Parent, s.Parent != nil)
	w.Any(`"output_schema":`, s.OutputSchema, len(s.OutputSchema) > 0)
	w.Any(`"variables":`, s.Variables, len(s.Variables) > 0)
	w.Key(`"limits":`)
	w.limits(&s.Limits)
	w.TextOr(`"stream":`, s.Stream)
	w.TextOr(`"reply_to":`, s.ReplyTo)
	w.Any(`"webhook":`, s.Webhook, s.Webhook != nil)
	w.Time(`"created_at":`, s.CreatedAt.Time)
}

// changing writes the part that turns change.
func (w *encoder) changing(s *State) {
	w.Text(`"status":`, string(s.Status))
	w.Num(`"turn":`, int64(s.Turn))
	w.Num(`"version":`, s.Version)
	w.Any(`"batch":`, s.Batch, s.Batch != nil)
	if s.Output != nil {
		w.Text(`"output":`, *s.Output)
	}
	w.Any(`"structured_output":`, s.StructuredOutput, len(s.StructuredOutput) > 0)
	w.Any(`"error":`, s.Error, s.Error != nil)
	if !s.LoopState.IsZero() {
		w.Any(`"loop_state":`, s.LoopState, true)
	}
	if s.Facts != (Facts{}) {
		w.Any(`"facts":`, s.Facts, true)
	}
	w.Any(`"waiting":`, s.Waiting, s.Waiting != nil)
	w.Any(`"open":`, s.Open, len(s.Open) > 0)
	w.YesOr(`"cleared":`, s.NeedsDetermined)
	w.YesOr(`"undecided":`, s.ResponsePending)
	w.TimeOr(`"resume_at":`, s.ResumeAt.Time)
	w.Any(`"reservation":`, s.Reservation, s.Reservation != nil)
	w.Any(`"warned":`, s.Warned, len(s.Warned) > 0)
	w.NumOr(`"turn_base":`, int64(s.TurnBase))
	w.YesOr(`"reenter":`, s.ContinueTurn)
	w.NumOr(`"failures":`, int64(s.Failures))
	w.NumOr(`"recoveries":`, int64(s.Recoveries))
	w.YesOr(`"compacted":`, s.Compacted)
	w.NumOr(`"stop_blocks":`, int64(s.StopBlocks))
	w.NumOr(`"fallback":`, int64(s.Fallback))
	w.NumOr(`"fallback_base":`, int64(s.FallbackBase))
	if s.Nudges != (Nudges{}) { // as an argument it would always be allocated on the heap
		w.Any(`"nudges":`, s.Nudges, true)
	}
	w.Any(`"poison":`, s.Poison, s.Poison != nil)
	w.YesOr(`"dead_lettered":`, s.DeadLettered)
	w.NumOr(`"asked":`, int64(s.ModelRequests))
	w.TextOr(`"trace_parent":`, s.TraceSpan)
	w.TimeOr(`"started_at":`, s.StartedAt.Time)
	w.Time(`"updated_at":`, s.UpdatedAt.Time)
	w.TimeOr(`"finished_at":`, s.FinishedAt.Time)
	w.NumOr(`"idle_ms":`, s.IdleMS)
	w.transition(s)
	w.totals(&s.Usage)
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

func (w *encoder) transition(s *State) {
	t := &s.Transition
	w.Key(`"transition":`)
	w.Open()
	w.Text(`"reason":`, string(t.Reason))
	w.TextOr(`"detail":`, t.Detail)
	if t.Turn != s.Turn {
		w.Num(`"turn":`, int64(t.Turn))
	}
	if t.Version != s.Version {
		w.Num(`"version":`, t.Version)
	}
	if !t.At.Equal(s.UpdatedAt.Time) {
		w.Time(`"at":`, t.At.Time)
	}
	w.Close()
}

func (w *encoder) totals(u *Usage) {
	w.Key(`"usage":`)
	w.Open()
	w.Num(`"in":`, u.InputTokens)
	w.NumOr(`"out":`, u.OutputTokens)
	w.NumOr(`"cache_read":`, u.CacheReadTokens)
	w.NumOr(`"cache_write":`, u.CacheWriteTokens)
	w.NumOr(`"calls":`, u.ModelCalls)
	w.NumOr(`"tools":`, u.ToolCalls)
	if u.CostUSD != nil {
		w.Key(`"cost":`)
		w.B = wire.AppendMillionths(w.B, int64(*u.CostUSD))
	}
	w.YesOr(`"estimated":`, u.Estimated)
	w.Close()
}

// fixed reads what encoder.fixed writes after begin.
func (d *decoder) fixed(begin string, s *State) {
	d.Must(begin)
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
	d.RawOr(`,"output_schema":`, &s.OutputSchema)
	d.RawOr(`,"variables":`, &s.Variables)
	if d.Key(`,"limits":{"max_turns":`) { // every run has it
		d.limits(&s.Limits)
	} else {
		wire.AnyOr(&d.Reader, `,"limits":`, &s.Limits)
	}
	wire.TextOr(&d.Reader, `,"stream":`, &s.Stream)
	wire.TextOr(&d.Reader, `,"reply_to":`, &s.ReplyTo)
	wire.AnyOr(&d.Reader, `,"webhook":`, &s.Webhook)
	d.Must(`,"created_at":`)
	s.CreatedAt = Time{d.Time()}
}

// changing reads what encoder.changing writes, to the end of the text.
func (d *decoder) changing(s *State) {
	d.Must(`,"status":`)
	s.Status = Status(d.Text())
	d.Must(`,"turn":`)
	s.Turn = d.Int()
	d.Must(`,"version":`)
	s.Version = d.Num()
	wire.AnyOr(&d.Reader, `,"batch":`, &s.Batch)
	if d.Key(`,"output":`) {
		text := d.Text()
		s.Output = &text
	}
	d.RawOr(`,"structured_output":`, &s.StructuredOutput)
	wire.AnyOr(&d.Reader, `,"error":`, &s.Error)
	wire.AnyOr(&d.Reader, `,"loop_state":`, &s.LoopState)
	wire.AnyOr(&d.Reader, `,"facts":`, &s.Facts)
	wire.AnyOr(&d.Reader, `,"waiting":`, &s.Waiting)
	wire.AnyOr(&d.Reader, `,"open":`, &s.Open)
	d.YesOr(`,"cleared":`, &s.NeedsDetermined)
	d.YesOr(`,"undecided":`, &s.ResponsePending)
	d.TimeOr(`,"resume_at":`, &s.ResumeAt.Time)
	wire.AnyOr(&d.Reader, `,"reservation":`, &s.Reservation)
	wire.AnyOr(&d.Reader, `,"warned":`, &s.Warned)
	d.IntOr(`,"turn_base":`, &s.TurnBase)
	d.YesOr(`,"reenter":`, &s.ContinueTurn)
	d.IntOr(`,"failures":`, &s.Failures)
	d.IntOr(`,"recoveries":`, &s.Recoveries)
	d.YesOr(`,"compacted":`, &s.Compacted)
	d.IntOr(`,"stop_blocks":`, &s.StopBlocks)
	d.IntOr(`,"fallback":`, &s.Fallback)
	d.IntOr(`,"fallback_base":`, &s.FallbackBase)
	wire.AnyOr(&d.Reader, `,"nudges":`, &s.Nudges)
	wire.AnyOr(&d.Reader, `,"poison":`, &s.Poison)
	d.YesOr(`,"dead_lettered":`, &s.DeadLettered)
	d.IntOr(`,"asked":`, &s.ModelRequests)
	wire.TextOr(&d.Reader, `,"trace_parent":`, &s.TraceSpan)
	d.TimeOr(`,"started_at":`, &s.StartedAt.Time)
	d.Must(`,"updated_at":`)
	s.UpdatedAt = Time{d.Time()}
	d.TimeOr(`,"finished_at":`, &s.FinishedAt.Time)
	d.NumOr(`,"idle_ms":`, &s.IdleMS)
	d.transition(s)
	d.totals(&s.Usage)
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

func (d *decoder) transition(s *State) {
	t := &s.Transition
	t.Turn, t.Version, t.At = s.Turn, s.Version, s.UpdatedAt
	d.Must(`,"transition":{"reason":`)
	t.Reason = Reason(d.Text())
	wire.TextOr(&d.Reader, `,"detail":`, &t.Detail)
	d.IntOr(`,"turn":`, &t.Turn)
	d.NumOr(`,"version":`, &t.Version)
	d.TimeOr(`,"at":`, &t.At.Time)
	d.Must(`}`)
}

func (d *decoder) totals(u *Usage) {
	d.Must(`,"usage":{"in":`)
	u.InputTokens = d.Num()
	d.NumOr(`,"out":`, &u.OutputTokens)
	d.NumOr(`,"cache_read":`, &u.CacheReadTokens)
	d.NumOr(`,"cache_write":`, &u.CacheWriteTokens)
	d.NumOr(`,"calls":`, &u.ModelCalls)
	d.NumOr(`,"tools":`, &u.ToolCalls)
	if d.Key(`,"cost":`) {
		u.CostUSD = new(MicroUSD)
		d.dollars(u.CostUSD)
	}
	d.YesOr(`,"estimated":`, &u.Estimated)
	d.Must(`}`)
}
