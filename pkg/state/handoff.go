package state

// AgentRef names a version of an agent.
type AgentRef struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// Handoff is a change of the agent that is responsible for a run.
type Handoff struct {
	From AgentRef `json:"from"`
	To   AgentRef `json:"to"`
}

// Definition returns the version of the agent that is responsible for the run.
func (s *State) Definition() AgentRef {
	if s.Active.Name != "" {
		return s.Active
	}
	return AgentRef{s.Agent, s.AgentVersion}
}

// DefinitionAt returns the version of the agent that was responsible at the end of a turn of a run
// with this log, which may begin with a checkpoint of an earlier turn.
func (s *State) DefinitionAt(log []Entry, turn int) AgentRef {
	at := AgentRef{s.Agent, s.AgentVersion}
	if c := CheckpointOf(log); c != nil {
		at = c.Agent
	}
	for i := range log {
		if e := &log[i]; e.Handoff != nil && e.Turn <= turn {
			at = e.Handoff.To
		}
	}
	return at
}
