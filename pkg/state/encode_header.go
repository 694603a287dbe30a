package state

// EncodeState encodes a header, without its log.
func EncodeState(s State) ([]byte, error) {
	s = s.Formatted()
	w := encoder{b: append(make([]byte, 0, 1024), '{')}
	w.num(`"format":`, int64(s.Format))
	w.text(`"id":`, string(s.ID))
	w.text(`"agent":`, s.Agent)
	w.num(`"agent_version":`, int64(s.AgentVersion))
	w.text(`"loop":`, s.Loop)
	w.text(`"tenant":`, s.Tenant)
	w.text(`"priority":`, string(s.Priority))
	w.any(`"metadata":`, s.Metadata, len(s.Metadata) > 0)
	w.any(`"parent":`, s.Parent, s.Parent != nil)
	w.any(`"batch":`, s.Batch, s.Batch != nil)
	w.text(`"status":`, string(s.Status))
	w.key(`"transition":`)
	w.transition(&s.Transition)
	w.num(`"turn":`, int64(s.Turn))
	w.num(`"version":`, s.Version)
	if s.Output != nil {
		w.text(`"output":`, *s.Output)
	}
	w.any(`"structured_output":`, s.StructuredOutput, len(s.StructuredOutput) > 0)
	w.any(`"output_schema":`, s.OutputSchema, len(s.OutputSchema) > 0)
	w.any(`"error":`, s.Error, s.Error != nil)
	w.any(`"confidence":`, s.Confidence, s.Confidence != nil)
	w.any(`"waiting":`, s.Waiting, s.Waiting != nil)
	w.any(`"open":`, s.Open, len(s.Open) > 0)
	w.yesOr(`"cleared":`, s.Cleared)
	w.yesOr(`"undecided":`, s.Undecided)
	w.textOr(`"phase":`, s.Phase)
	if !s.ResumeAt.IsZero() {
		w.time(`"resume_at":`, s.ResumeAt)
	}
	w.any(`"place":`, s.Place, s.Place != nil)
	w.key(`"usage":`)
	w.usage(&s.Usage)
	w.key(`"limits":`)
	w.limits(&s.Limits)
	w.any(`"warned":`, s.Warned, len(s.Warned) > 0)
	w.numOr(`"turn_base":`, int64(s.TurnBase))
	w.yesOr(`"reenter":`, s.Reenter)
	w.numOr(`"failures":`, int64(s.Failures))
	w.numOr(`"recoveries":`, int64(s.Recoveries))
	w.yesOr(`"compacted":`, s.Compacted)
	w.numOr(`"stop_blocks":`, int64(s.StopBlocks))
	w.numOr(`"fallback":`, int64(s.Fallback))
	w.numOr(`"fallback_base":`, int64(s.FallbackBase))
	if s.Nudges != (Nudges{}) { // as an argument it would be on the heap, there or not
		w.any(`"nudges":`, s.Nudges, true)
	}
	w.any(`"poison":`, s.Poison, s.Poison != nil)
	w.numOr(`"asked":`, int64(s.Asked))
	w.textOr(`"stream":`, s.Stream)
	w.textOr(`"reply_to":`, s.ReplyTo)
	w.any(`"webhook":`, s.Webhook, s.Webhook != nil)
	w.textOr(`"trace_parent":`, s.TraceSpan)
	w.time(`"created_at":`, s.CreatedAt)
	w.time(`"started_at":`, s.StartedAt)
	w.time(`"updated_at":`, s.UpdatedAt)
	w.time(`"finished_at":`, s.FinishedAt)
	return w.end()
}

func (w *encoder) transition(t *Transition) {
	w.b = append(w.b, '{')
	w.text(`"reason":`, string(t.Reason))
	w.text(`"detail":`, t.Detail)
	w.num(`"turn":`, int64(t.Turn))
	w.num(`"version":`, t.Version)
	w.time(`"at":`, t.At)
	w.b = append(w.b, '}')
}

func (w *encoder) limits(l *Limits) {
	w.b = append(w.b, '{')
	w.numOr(`"max_turns":`, int64(l.MaxTurns))
	w.numOr(`"output_tokens":`, l.OutputTokens)
	w.numOr(`"total_tokens":`, l.TotalTokens)
	w.any(`"cost_usd":`, l.CostUSD, l.CostUSD != 0)
	if !l.DeadlineAt.IsZero() {
		w.time(`"deadline_at":`, l.DeadlineAt)
	}
	w.numOr(`"wait_ms":`, l.WaitMS)
	w.any(`"warn_at":`, l.WarnAt, l.WarnAt != 0)
	w.b = append(w.b, '}')
}
