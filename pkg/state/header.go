package state

import "github.com/turnpike-dev/turnpike/internal/state/wire"

// A header has two parts: one that turns change, and one fixed at submission. A store that keeps
// them separate writes the second one once. The encoder omits empty fields and those that repeat
// another field.

// changing writes the part that turns change. The format is the first field: a build that does not
// know it reads nothing else.
func (p *packer) changing(s *State) {
	p.Num(1, int64(formatOf(s)))
	p.WordOr(2, statuses, string(s.Status))
	p.NumOr(3, int64(s.Turn))
	p.NumOr(4, s.Version)
	p.WordOr(5, reasons, string(s.Transition.Reason))
	p.TimeOr(6, s.UpdatedAt.Time)
	p.TimeOr(7, s.StartedAt.Time)
	if s.Usage != (Usage{}) {
		p.usage(8, &s.Usage)
	}
	p.NumOr(9, int64(s.ModelRequests))
	p.YesOr(10, s.NeedsDetermined)
	p.YesOr(11, s.ResponsePending)
	p.TimeOr(12, s.FinishedAt.Time)
	if s.Output != nil {
		p.Text(13, *s.Output)
	}
	p.TextOr(14, s.TraceSpan)
	p.YesOr(15, s.ContinueTurn)
	p.Any(16, s.Batch, s.Batch != nil)
	p.RawOr(17, s.StructuredOutput)
	p.Any(18, s.Error, s.Error != nil)
	p.NumOr(19, int64(s.LoopState.Version))
	p.RawOr(20, s.LoopState.Data)
	if s.Facts.Confidence != nil {
		p.Float(21, *s.Facts.Confidence)
	}
	p.Any(22, s.Waiting, s.Waiting != nil)
	p.Any(23, s.Open, len(s.Open) > 0)
	p.TimeOr(24, s.ResumeAt.Time)
	p.Any(25, s.Reservation, s.Reservation != nil)
	p.Texts(26, s.Warned)
	p.NumOr(27, int64(s.TurnBase))
	p.NumOr(28, int64(s.Failures))
	p.NumOr(29, int64(s.Recoveries))
	p.YesOr(30, s.Compacted)
	p.NumOr(31, int64(s.StopBlocks))
	p.NumOr(32, int64(s.Fallback))
	p.NumOr(33, int64(s.FallbackBase))
	p.NumOr(34, int64(s.Nudges.Count))
	p.NumOr(35, s.Nudges.LastDelta)
	p.NumOr(36, s.Nudges.LastTotal)
	p.Any(37, s.Poison, s.Poison != nil)
	p.YesOr(38, s.DeadLettered)
	p.NumOr(39, s.IdleMS)
	t := &s.Transition
	p.TextOr(40, t.Detail)
	if t.Turn != s.Turn {
		p.Num(41, int64(t.Turn))
	}
	if t.Version != s.Version {
		p.Num(42, t.Version)
	}
	if !t.At.Equal(s.UpdatedAt.Time) {
		p.time(43, t.At.Time)
	}
	p.NumOr(44, int64(s.Trouble.ToolErrors))
	p.NumOr(45, int64(s.Trouble.ModelRetries))
	p.NumOr(46, int64(s.Trouble.Recovered))
	p.NumOr(47, int64(s.Trouble.HookErrors))
	p.TextOr(48, s.Active.Name)
	p.NumOr(49, int64(s.Active.Version))
	p.NumOr(50, s.Checkpoint)
	p.NumOr(51, s.LogBytes)
}

// fixed writes the part that is fixed at submission. Its numbers begin at 64, so that both parts
// can be one message.
func (p *packer) fixed(s *State) {
	p.TextOr(64, string(s.ID))
	p.TextOr(65, s.Agent)
	p.NumOr(66, int64(s.AgentVersion))
	p.TextOr(67, s.Loop)
	if s.Tenant != DefaultTenant {
		p.Text(68, s.Tenant)
	}
	p.WordOr(69, priorities, string(s.Priority))
	if len(s.Metadata) > 0 {
		p.Map(70, s.Metadata)
	}
	p.Any(71, s.Parent, s.Parent != nil)
	p.RawOr(72, s.OutputSchema)
	p.RawOr(73, s.Variables)
	if s.Limits != (Limits{}) {
		p.limits(74, &s.Limits)
	}
	p.TextOr(75, s.Stream)
	p.TextOr(76, s.ReplyTo)
	p.Any(77, s.Webhook, s.Webhook != nil)
	p.TimeOr(78, s.CreatedAt.Time)
}

func (p *packer) limits(field int, l *Limits) {
	start := p.Open(field)
	p.NumOr(1, int64(l.MaxTurns))
	p.NumOr(2, l.OutputTokens)
	p.NumOr(3, l.TotalTokens)
	p.NumOr(4, int64(l.CostUSD))
	p.TimeOr(5, l.DeadlineAt.Time)
	p.NumOr(6, l.WaitMS)
	p.NumOr(7, int64(l.Runs))
	p.FloatOr(8, l.WarnAt)
	p.Close(start)
}

// header reads both parts, or one.
func (u *unpacker) header(s *State) {
	t := &s.Transition
	turn, version, at := false, false, false
	for u.Next() {
		switch u.Field() {
		case 1:
			u.Check(u.Int() == s.Format) // the caller has read it
		case 2:
			s.Status = Status(u.Word(statuses))
		case 3:
			s.Turn = u.Int()
		case 4:
			s.Version = u.Num()
		case 5:
			t.Reason = Reason(u.Word(reasons))
		case 6:
			s.UpdatedAt = Time{u.Time()}
		case 7:
			s.StartedAt = Time{u.Time()}
		case 8:
			u.usage(&s.Usage)
		case 9:
			s.ModelRequests = u.Int()
		case 10:
			s.NeedsDetermined = u.Yes()
		case 11:
			s.ResponsePending = u.Yes()
		case 12:
			s.FinishedAt = Time{u.Time()}
		case 13:
			text := u.Text()
			s.Output = &text
		case 14:
			s.TraceSpan = u.Text()
		case 15:
			s.ContinueTurn = u.Yes()
		case 40:
			t.Detail = u.Text()
		case 41:
			t.Turn, turn = u.Int(), true
		case 42:
			t.Version, version = u.Num(), true
		case 43:
			t.At, at = Time{u.Time()}, true
		case 44:
			s.Trouble.ToolErrors = u.Int()
		case 45:
			s.Trouble.ModelRetries = u.Int()
		case 46:
			s.Trouble.Recovered = u.Int()
		case 47:
			s.Trouble.HookErrors = u.Int()
		case 48:
			s.Active.Name = u.Text()
		case 49:
			s.Active.Version = u.Int()
		case 50:
			s.Checkpoint = u.Num()
		case 51:
			s.LogBytes = u.Num()
		default:
			if u.Field() < 40 {
				u.rareOfHeader(s)
			} else {
				u.fixed(s)
			}
		}
	}
	if !turn {
		t.Turn = s.Turn
	}
	if !version {
		t.Version = s.Version
	}
	if !at {
		t.At = s.UpdatedAt
	}
}

func (u *unpacker) rareOfHeader(s *State) {
	switch u.Field() {
	case 16:
		s.Batch = wire.Any[*Batch](&u.Unpacker)
	case 17:
		s.StructuredOutput = u.Raw()
	case 18:
		s.Error = wire.Any[*Error](&u.Unpacker)
	case 19:
		s.LoopState.Version = u.Int()
	case 20:
		s.LoopState.Data = u.Raw()
	case 21:
		f := u.Float()
		s.Facts.Confidence = &f
	case 22:
		s.Waiting = wire.Any[*Wait](&u.Unpacker)
	case 23:
		s.Open = wire.Any[[]OpenCall](&u.Unpacker)
	case 24:
		s.ResumeAt = Time{u.Time()}
	case 25:
		s.Reservation = wire.Any[*Reservation](&u.Unpacker)
	case 26:
		s.Warned = append(s.Warned, u.Text())
	case 27:
		s.TurnBase = u.Int()
	case 28:
		s.Failures = u.Int()
	case 29:
		s.Recoveries = u.Int()
	case 30:
		s.Compacted = u.Yes()
	case 31:
		s.StopBlocks = u.Int()
	case 32:
		s.Fallback = u.Int()
	case 33:
		s.FallbackBase = u.Int()
	case 34:
		s.Nudges.Count = u.Int()
	case 35:
		s.Nudges.LastDelta = u.Num()
	case 36:
		s.Nudges.LastTotal = u.Num()
	case 37:
		s.Poison = wire.Any[*Poison](&u.Unpacker)
	case 38:
		s.DeadLettered = u.Yes()
	case 39:
		s.IdleMS = u.Num()
	}
}

func (u *unpacker) fixed(s *State) {
	switch u.Field() {
	case 64:
		s.ID = RunID(u.Text())
	case 65:
		s.Agent = u.Text()
	case 66:
		s.AgentVersion = u.Int()
	case 67:
		s.Loop = u.Text()
	case 68:
		s.Tenant = u.Text()
	case 69:
		s.Priority = Priority(u.Word(priorities))
	case 70:
		u.Map(&s.Metadata)
	case 71:
		s.Parent = wire.Any[*Parent](&u.Unpacker)
	case 72:
		s.OutputSchema = u.Raw()
	case 73:
		s.Variables = u.Raw()
	case 74:
		u.limits(&s.Limits)
	case 75:
		s.Stream = u.Text()
	case 76:
		s.ReplyTo = u.Text()
	case 77:
		s.Webhook = wire.Any[*Webhook](&u.Unpacker)
	case 78:
		s.CreatedAt = Time{u.Time()}
	}
}

func (u *unpacker) limits(l *Limits) {
	in := unpack(u.Text())
	for in.Next() {
		switch in.Field() {
		case 1:
			l.MaxTurns = in.Int()
		case 2:
			l.OutputTokens = in.Num()
		case 3:
			l.TotalTokens = in.Num()
		case 4:
			l.CostUSD = MicroUSD(in.Num())
		case 5:
			l.DeadlineAt = Time{in.Time()}
		case 6:
			l.WaitMS = in.Num()
		case 7:
			l.Runs = in.Int()
		case 8:
			l.WarnAt = in.Float()
		}
	}
	u.Check(in.OK())
}
