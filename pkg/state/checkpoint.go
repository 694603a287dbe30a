package state

import "slices"

// Checkpoint stands for the entries of a log before it. A turn begins with one when the log has
// grown far beyond what the model sees (see loop.Checkpoint). Once that turn is committed, claims,
// and other readers that need only the state of the run, read the log from the checkpoint on. The
// entries before it stay in the log, for readers of the history. Code that folds a log takes what it needs of
// earlier entries from the checkpoint that the log begins with, and ignores a checkpoint elsewhere.
type Checkpoint struct {
	// Messages are the view of the entries before, as View returns it. They are stored apart from the rest.
	Messages []Message `json:"-"`

	// Previous is the number of the checkpoint before this one, or 0.
	Previous int64 `json:"previous,omitempty"`

	// Submitted are the ids of those of Messages that came with the submission,
	// except the history that a fork shares. Edited are the arguments of calls that
	// a person or a hook has edited, by the ids of the messages with their results.
	Submitted []string          `json:"submitted,omitempty"`
	Edited    map[string]string `json:"edited,omitempty"`

	// Untrusted is the least trusted origin of the messages that are not in Messages.
	Untrusted Origin `json:"untrusted,omitempty"`

	// Files are the versions of files in memories that the run has seen, and FilesFrom the least trusted origins of
	// these files, by the tool that has read them.
	Files     map[string]map[string]int64 `json:"files,omitempty"`
	FilesFrom map[string]Origin           `json:"files_from,omitempty"`

	// Agent was responsible for the run. Confidence is that of Facts.
	Agent      AgentRef `json:"agent,omitzero"`
	Confidence *float64 `json:"confidence,omitempty"`

	// Askers are the principals that had requested something, Decided the ids of the calls about which an approver
	// had decided.
	Askers  []string `json:"askers,omitempty"`
	Decided []string `json:"decided,omitempty"`

	// Ending are the figures since the latest end of the run.
	Ending Ending `json:"ending,omitzero"`

	// Calls of tools by their names, as max_calls counts them.
	Calls map[string]int `json:"calls,omitempty"`

	// Largest is the highest usage of one response, for each limit separately.
	Largest Usage `json:"largest,omitzero"`

	// CalledAt is the time of the last response, and Window the number of its tokens, 0 if that is not known. Text is
	// that of the last response not withdrawn, nil without one. Answer is the number of output tokens, and Cached what
	// the provider's cache had afterwards, of the last response that reported it. A compaction resets Window and Cached.
	CalledAt Time          `json:"called_at,omitzero"`
	Text     *string       `json:"text,omitempty"`
	Window   int64         `json:"window,omitempty"`
	Answer   *int64        `json:"answer,omitempty"`
	Cached   *CachedPrompt `json:"cached,omitempty"`

	// Same are the calls of the last responses in a row that had the same calls.
	Same SameCalls `json:"same,omitzero"`

	// Errors are whether the latest results were errors, the latest first. ToolLast reports whether a result was
	// the last that the model would read.
	Errors   []bool `json:"errors,omitempty"`
	ToolLast bool   `json:"tool_last,omitempty"`

	// Since the last user message: whether the model has responded, whether the run has made its reactive
	// compaction, and the number of answers that did not match the output schema.
	Responded bool `json:"responded,omitempty"`
	Reacted   bool `json:"reacted,omitempty"`
	Retries   int  `json:"retries,omitempty"`

	// Reaction is what happened since the latest reactive compaction; nil without one.
	Reaction *Reaction `json:"reaction,omitempty"`
}

// CachedPrompt is the part of a prompt that a model's provider had in its cache.
type CachedPrompt struct {
	Model  string `json:"model,omitempty"`
	Tokens int64  `json:"tokens,omitempty"`
}

// SameCalls are the calls of the last responses in a row that had the same ones: their hashes, sorted, and the
// number of these responses.
type SameCalls struct {
	Calls []string `json:"calls,omitempty"`
	Times int      `json:"times,omitempty"`
}

// Reaction reports whether a model has accepted a prompt and a tool call has returned since a reactive compaction.
type Reaction struct {
	Answered bool `json:"answered,omitempty"`
	Returned bool `json:"returned,omitempty"`
}

// CheckpointOf returns the checkpoint that a log begins with, or nil.
func CheckpointOf(log []Entry) *Checkpoint {
	if len(log) == 0 {
		return nil
	}
	return log[0].Checkpoint
}

// After returns the entries of a log with numbers above n. A log that begins with a checkpoint has none of the
// entries before it.
func After(log []Entry, n int64) []Entry { return log[position(log, n):] }

// Through returns the entries of a log with numbers up to n.
func Through(log []Entry, n int64) []Entry { return log[:position(log, n)] }

// FromCheckpoint returns a log without the entries before its checkpoint number seq; 0 means that it has none.
func FromCheckpoint(log []Entry, seq int64) []Entry { return After(log, seq-1) }

// position returns the number of entries in log with numbers up to n.
func position(log []Entry, n int64) int64 {
	if len(log) == 0 {
		return 0
	}
	return min(max(0, n-max(0, log[0].Seq-1)), int64(len(log)))
}

// NewCheckpoint returns the part of the next checkpoint of s that this package folds: the view, and the facts that
// its own functions need.
func NewCheckpoint(s *State) *Checkpoint {
	c := &Checkpoint{
		Messages: View(s.Log), Previous: s.Checkpoint, Agent: s.Definition(), Confidence: s.Facts.Confidence,
		Askers: Askers(nil, s.Log), Decided: decided(s.Log), Ending: endingOf(s).Ending, Cached: cached(s.Log),
	}
	c.Untrusted = untrustedBefore(s.Log, c.Messages)
	in := map[string]bool{}
	for i := range c.Messages {
		in[c.Messages[i].ID] = true
	}
	if old := CheckpointOf(s.Log); old != nil {
		for _, id := range old.Submitted {
			if in[id] {
				c.Submitted = append(c.Submitted, id)
			}
		}
		for id, arguments := range old.Edited {
			c.edit(in, id, arguments)
		}
	}
	for i := range s.Log {
		e := &s.Log[i]
		switch {
		case e.Type == EntrySubmitted && e.Reason != Forked:
			for _, m := range e.Messages {
				if in[m.ID] {
					c.Submitted = append(c.Submitted, m.ID)
				}
			}
		case e.Type == EntryTool && e.Arguments != "" && e.Message != nil:
			c.edit(in, e.Message.ID, e.Arguments)
		}
	}
	return c
}

func (c *Checkpoint) edit(in map[string]bool, id, arguments string) {
	if !in[id] {
		return
	}
	if c.Edited == nil {
		c.Edited = map[string]string{}
	}
	c.Edited[id] = arguments
}

// untrustedBefore returns the least trusted origin of the messages of a log that are not in its view.
func untrustedBefore(log []Entry, view []Message) Origin {
	var farthest Origin
	in := map[string]bool{}
	for i := range view {
		in[view[i].ID] = true
	}
	add := func(m *Message) {
		if in[m.ID] {
			return
		}
		for i := range m.Parts {
			if !m.Synthetic || m.Parts[i].Type == PartText {
				farthest = farthest.Farther(m.Parts[i].Source())
			}
		}
	}
	if c := CheckpointOf(log); c != nil {
		farthest = c.Untrusted
		for i := range c.Messages {
			add(&c.Messages[i])
		}
	}
	for i := range log {
		if e := &log[i]; e.Message != nil {
			add(e.Message)
		}
		for j := range log[i].Messages {
			add(&log[i].Messages[j])
		}
	}
	return farthest
}

// decided returns the ids of the calls about which an approver has decided.
func decided(log []Entry) []string {
	var ids []string
	if c := CheckpointOf(log); c != nil {
		ids = slices.Clip(c.Decided)
	}
	for i := range log {
		if log[i].Type == EntryDecided {
			ids = append(ids, log[i].CallID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
