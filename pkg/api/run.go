package api

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Run is a run as a reader sees it. Every field is always present.
type Run struct {
	ID               string            `json:"id"`
	Agent            string            `json:"agent"`
	AgentVersion     int               `json:"agent_version"`
	ActiveAgent      *state.AgentRef   `json:"active_agent"` // the agent since a handoff; null without one
	Loop             string            `json:"loop"`
	Tenant           string            `json:"tenant"`
	Priority         string            `json:"priority"`
	Metadata         map[string]string `json:"metadata"`
	Variables        json.RawMessage   `json:"variables"` // of the agent, as submitted; null without any
	Parent           *Parent           `json:"parent"`
	Status           string            `json:"status"`
	Reason           *string           `json:"reason"`
	Transition       Transition        `json:"transition"`
	TurnCount        int               `json:"turn_count"`
	Version          int64             `json:"version"`
	Output           *string           `json:"output"`
	StructuredOutput json.RawMessage   `json:"structured_output"`
	Waiting          *Waiting          `json:"waiting"`
	Usage            state.Usage       `json:"usage"`
	Budget           Budget            `json:"budget"`
	Confidence       *float64          `json:"confidence"`
	Error            *state.Error      `json:"error"`
	CreatedAt        state.Time        `json:"created_at"`
	StartedAt        state.Time        `json:"started_at"`
	UpdatedAt        state.Time        `json:"updated_at"`
	FinishedAt       state.Time        `json:"finished_at"`

	// IdleMS is the time, in milliseconds, from each end of the run until
	// a replay or a message continued it. It does not count as duration.
	IdleMS int64 `json:"idle_ms"`

	// Trouble counts the failures in the run, whatever its status.
	Trouble Trouble `json:"trouble"`
}

// Trouble counts failures of a run that did not have to end it.
type Trouble struct {
	ToolErrors   int `json:"tool_errors"`   // tool calls that ended with an error
	ModelRetries int `json:"model_retries"` // failed model calls that the run repeated
	Recovered    int `json:"recovered"`     // attempts that ended without a result and that another attempt replaced

	// HookErrors is the number of failed hooks. Hooks that the end of the run does not wait for do not count.
	HookErrors int `json:"hook_errors"`

	// Limits names the limits that the run has nearly reached, as budget.warning events do.
	Limits []string `json:"limits"`
}

// Took returns the time from since, the creation or the start of the run, to its end, or to now if it has not ended. It
// excludes IdleMS.
func (r Run) Took(since, now time.Time) time.Duration {
	if !r.FinishedAt.IsZero() {
		now = r.FinishedAt.Time
	}
	return max(0, now.Sub(since)-time.Duration(r.IdleMS)*time.Millisecond)
}

// Parent names the run and the call that started a child run.
type Parent = state.Parent

// Transition is the latest change of status of a run.
type Transition = state.Transition

// Waiting describes the wait of a waiting run.
type Waiting struct {
	Reason    string     `json:"reason"`
	Since     state.Time `json:"since"`
	ExpiresAt state.Time `json:"expires_at"`
	Calls     []WaitCall `json:"calls"`
	Question  *string    `json:"question"`
}

// WaitCall is one tool call that keeps a run waiting for a decision or a result.
type WaitCall struct {
	ID        string          `json:"id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Message   string          `json:"message"`
	Needs     string          `json:"needs"` // approval, result, answer, child, async

	// Hash identifies the run, its turn, the call, its tool and its arguments: an approval with this hash decides about
	// exactly that. It is empty if Needs is not approval.
	Hash string `json:"hash,omitempty"`

	// Risk is the effect of the tool, from its definition: reads, writes, pays or sends; nil if it has none.
	Risk  *string `json:"risk"`
	RunID *string `json:"run_id"` // the child run whose result the call needs

	// ArgsFromUntrusted, UntrustedSeen and Sources are set for a call that waits for approval: whether a value of its
	// arguments also occurs in untrusted text, whether the model has read any untrusted text, and the sources of the
	// former as far as they are known.
	ArgsFromUntrusted bool                   `json:"args_from_untrusted"`
	UntrustedSeen     bool                   `json:"untrusted_seen"`
	Sources           []state.ArgumentSource `json:"sources"`

	// Again is the reason why a call that an approver has edited waits for approval once more. It is nil for other
	// calls.
	Again *state.AskedAgain `json:"again"`
}

// Budget has the limits of a run. nil, or a null time, means no limit. UsedFraction is the part of the most used limit
// that the run has used.
type Budget struct {
	MaxTurns     *int            `json:"max_turns"`
	OutputTokens *int64          `json:"output_tokens"`
	TotalTokens  *int64          `json:"total_tokens"`
	CostUSD      *state.MicroUSD `json:"cost_usd"`
	Deadline     state.Time      `json:"deadline"`
	UsedFraction float64         `json:"used_fraction"`
}

// Terminal reports whether the run has ended.
func (r Run) Terminal() bool { return state.Status(r.Status).Terminal() }

// RunOf returns s as readers see it. now is the time for UsedFraction and IdleMS of a run that has not ended.
func RunOf(s state.State, now time.Time) Run {
	r := Run{
		ID: string(s.ID), Agent: s.Agent, AgentVersion: s.AgentVersion, Loop: s.Loop, Tenant: s.Tenant, Priority: string(s.Priority),
		Metadata: s.Metadata, Variables: s.Variables, Parent: s.Parent, Status: string(s.Status), Transition: s.Transition, TurnCount: s.Turn, Version: s.Version,
		Output: s.Output, StructuredOutput: s.StructuredOutput, Usage: s.Usage, Confidence: s.Facts.Confidence, Error: s.Error,
		CreatedAt: s.CreatedAt, StartedAt: s.StartedAt, UpdatedAt: s.UpdatedAt, FinishedAt: s.FinishedAt, IdleMS: s.Idle(now).Milliseconds(),
		Trouble: Trouble{
			ToolErrors: s.Trouble.ToolErrors, ModelRetries: s.Trouble.ModelRetries, Recovered: s.Trouble.Recovered, HookErrors: s.Trouble.HookErrors,
			Limits: append([]string{}, s.Warned...),
		},
		Budget: Budget{
			MaxTurns: some(s.Limits.MaxTurns), OutputTokens: some(s.Limits.OutputTokens), TotalTokens: some(s.Limits.TotalTokens),
			CostUSD: some(s.Limits.CostUSD), Deadline: s.Limits.DeadlineAt,
		},
	}
	if s.Active.Name != "" {
		r.ActiveAgent = &s.Active
	}
	if r.Metadata == nil {
		r.Metadata = map[string]string{}
	}
	if len(r.Variables) == 0 {
		r.Variables = json.RawMessage("null")
	}
	if len(r.StructuredOutput) == 0 {
		r.StructuredOutput = json.RawMessage("null")
	}
	if s.Status.Terminal() {
		reason := string(s.Transition.Reason)
		r.Reason = &reason
		now = s.FinishedAt.Time
	}
	if w := s.Waiting; w != nil {
		reason := string(w.Reason)
		r.Reason = &reason
		r.Waiting = &Waiting{Reason: reason, Since: w.Since, ExpiresAt: w.ExpiresAt, Calls: make([]WaitCall, len(w.Calls))}
		for i, c := range w.Calls {
			r.Waiting.Calls[i] = WaitCall{
				ID: c.ID, Tool: c.Tool, Arguments: c.Arguments, Message: c.Message, Needs: string(c.Needs),
				ArgsFromUntrusted: c.ArgsFromUntrusted, UntrustedSeen: c.UntrustedSeen, Sources: append([]state.ArgumentSource{}, c.Sources...),
				Again: c.Again,
			}
			if c.Needs == state.NeedApproval {
				r.Waiting.Calls[i].Hash = c.Hash
			}
			if risk := c.Risk; risk != "" {
				r.Waiting.Calls[i].Risk = &risk
			}
			if child := string(c.RunID); child != "" {
				r.Waiting.Calls[i].RunID = &child
			}
		}
		if w.Question != "" {
			r.Waiting.Question = &w.Question
		}
	}
	r.Budget.UsedFraction = budget.UsedFraction(s.Limits, s.Usage, s.Turn-s.TurnBase, s.CreatedAt.Time, now)
	return r
}

// some returns nil for a limit of 0.
func some[T int | int64 | state.MicroUSD](v T) *T {
	if v == 0 {
		return nil
	}
	return &v
}

// Message is one message of a transcript.
type Message = state.Message

// FullMessage is a Message that encodes every field of the contract, including empty ones.
type FullMessage struct {
	Message

	// These fields hide those of Message, which are omitted when they are empty.
	Model       *string      `json:"model"`
	Synthetic   bool         `json:"synthetic"`
	Undelivered bool         `json:"undelivered"`
	Tombstoned  bool         `json:"tombstoned"`
	Compacted   bool         `json:"compacted"`
	Parts       []state.Part `json:"parts"`
}

// MessagesOf returns messages as readers see them. Model is nil unless a model wrote the message. Parts of a tool
// message without an Origin get state.OriginTool, unless the message is synthetic.
func MessagesOf(messages []state.Message) []FullMessage {
	out := make([]FullMessage, len(messages))
	for i, m := range messages {
		out[i] = FullMessage{Message: m, Synthetic: m.Synthetic, Undelivered: m.Undelivered, Tombstoned: m.Tombstoned, Compacted: m.Compacted, Parts: m.Parts}
		if m.Model != "" {
			out[i].Model = &m.Model
		}
		if m.Parts == nil {
			out[i].Parts = []state.Part{}
		}
		if m.Role == state.RoleTool && !m.Synthetic {
			out[i].Parts = slices.Clone(out[i].Parts)
			for p := range out[i].Parts {
				out[i].Parts[p].Origin = cmp.Or(out[i].Parts[p].Origin, state.OriginTool)
			}
		}
	}
	return out
}

// Turn is one turn of the audit trail.
type Turn = state.AuditRow

// Page is one page of a list. NextCursor is nil on the last page.
type Page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`

	// Examined and Complete are set for a list of runs with a search for a text or for trouble: the number of runs that
	// the search has examined so far, and whether these are all that match the rest of the filter. If Complete is false
	// and NextCursor nil, the search has reached its bound of 1,000 runs.
	Examined *int  `json:"examined,omitempty"`
	Complete *bool `json:"complete,omitempty"`
}

// NewPage returns a page. Its items always encode as a list, never as null; an empty next means the last page.
func NewPage[T any](items []T, next string) Page[T] {
	if items == nil {
		items = []T{}
	}
	p := Page[T]{Items: items}
	if next != "" {
		p.NextCursor = &next
	}
	return p
}

// SessionEvent is one step of a run in GET /v1/runs/{id}/messages?view=session.
type SessionEvent = state.SessionEvent

// Agent is one version of an agent's definition. Its Status is StatusPublished, or StatusDraft in the result of
// PutAgent if the definition waits for review.
type Agent = state.AgentVersion

// SavedAgent is the result of saving a definition.
type SavedAgent struct {
	Agent

	// Warnings are references in the definition to resources that were not found, or that the definition does not
	// declare. The use of such a resource in a run fails. There are at most 50, and the search may miss some.
	Warnings []Warning `json:"warnings,omitempty"`
}

// Warning is a reference in a definition to a resource that no process has, or that the definition does not declare.
type Warning struct {
	Fault

	Kind string `json:"kind"` // tool, hook, agent, secret, variable or argument
	Name string `json:"name"` // of the resource; for a hook its subject
}

// The statuses of a definition: runs may use only a published one.
const (
	StatusDraft     = "draft"
	StatusPublished = "published"
)

// AgentDraft is a definition that waits for review. No run can use it.
type AgentDraft struct {
	Name       string          `json:"name"`
	Version    int             `json:"version"` // the version that it would get now
	Status     string          `json:"status"`  // always StatusDraft
	Definition json.RawMessage `json:"definition"`
	Hash       string          `json:"hash"` // of the definition
	By         state.By        `json:"by"`   // the principal that saved it first
	CreatedAt  state.Time      `json:"created_at"`

	// Authors are the principals who have saved exactly this definition. None of them may
	// publish it.
	Authors []string `json:"authors,omitempty"`
}

// PublishRequest publishes the draft with this hash.
type PublishRequest struct {
	Hash string `json:"hash"`
}
