package state

// EntryFast and StateFast decode what the encoder writes, and report whether text is that.
func EntryFast(text string) (e Entry, ok bool) {
	var d decoder
	d.Begin(text)
	d.entry(&e)
	return e, d.Done()
}

func StateFast(text string) (s State, ok bool) { return readHeader("", text) }

// HeaderFast is StateFast of the parts of a header.
func HeaderFast(fixed, changing string) (s State, ok bool) { return readHeader(fixed, changing) }

// StateSlow and HeaderSlow decode what another encoder has written.
func StateSlow(text string) (State, error) { return parseHeader("", text) }

func HeaderSlow(fixed, changing string) (State, error) { return parseHeader(fixed, changing) }

// Oracle returns what encoding/json writes as a header.
func Oracle(s State) any {
	h := header{plain: plain(s), Transition: transition{Reason: s.Transition.Reason, Detail: s.Transition.Detail}}
	h.Format = s.format()
	if s.Transition.Turn != s.Turn {
		h.Transition.Turn = &s.Transition.Turn
	}
	if s.Transition.Version != s.Version {
		h.Transition.Version = &s.Transition.Version
	}
	if !s.Transition.At.Equal(s.UpdatedAt.Time) {
		h.Transition.At = optionalTime{s.Transition.At, true}
	}
	u := s.Usage
	h.Usage = totals{u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.ModelCalls, u.ToolCalls, u.CostUSD, u.Estimated}
	return h
}
