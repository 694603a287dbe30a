package agent

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Definition is an agent as its author writes it, in YAML or JSON. Unknown keys
// are errors.
type Definition struct {
	Name         string      `json:"name"`
	Description  string      `json:"description,omitempty"`
	Instructions string      `json:"instructions,omitempty"`
	Model        Model       `json:"model"`
	Loop         Loop        `json:"loop,omitzero"`
	Tools        []Tool      `json:"tools,omitempty"`
	Hooks        *Hooks      `json:"hooks,omitempty"`
	Limits       Limits      `json:"limits,omitzero"`
	Retention    Retention   `json:"retention,omitzero"` // shorter than the deployment's
	Compaction   *Compaction `json:"compaction,omitempty"`

	// Webhook receives the events of runs that are submitted without one. Runs of drafts and child runs
	// have none of their agent.
	Webhook *state.Webhook `json:"webhook,omitempty"`

	// OutputSchema is a JSON Schema that the output of every run matches (D8). An answer that does not
	// is returned to the model, at most MaxOutputRetries times; nil means 2, and 0 with single_call.
	OutputSchema     json.RawMessage `json:"output_schema,omitempty"`
	MaxOutputRetries *int            `json:"max_output_retries,omitempty"`

	// Variables is a JSON Schema of an object. Each {{name}} of Instructions that is one of its
	// properties stands for a value that a submission gives. See [Agent.Instruct].
	Variables json.RawMessage `json:"variables,omitempty"`
}

// Model selects the model of an agent, with its settings.
type Model struct {
	Provider string `json:"provider"` // scripted, openai, anthropic, gemini, or one registered in Go
	Name     string `json:"name,omitempty"`
	BaseURL  string `json:"base_url,omitempty"`

	// API of the provider openai: responses or chat. Empty means responses, or chat with a BaseURL,
	// since compatible servers implement that.
	API model.API `json:"api,omitempty"`

	APIKey          string `json:"api_key,omitempty"` // a reference: secret://NAME
	MaxOutputTokens int64  `json:"max_output_tokens,omitempty"`

	// Reasoning is how much the model should think before it answers: none, low,
	// medium, high, xhigh, max; "" leaves it to the provider.
	Reasoning model.Effort `json:"reasoning,omitempty"`

	model.Settings

	// Fallback lists the models that take over, each with settings of its own.
	Fallback []Model `json:"fallback,omitempty"`

	// Timeout of one model call; 0 means 10 minutes.
	Timeout model.Duration `json:"timeout,omitempty"`

	// Responses of the scripted provider, here or in a JSON or YAML file, which
	// is read when the definition is loaded by the command line.
	Responses     []model.Scripted `json:"responses,omitempty"`
	ResponsesFile string           `json:"responses_file,omitempty"`
}

// Loop selects the loop of an agent, with its settings.
type Loop struct {
	Type     string `json:"type,omitempty"`      // react, single_call, reflect, two_phase, or a name registered in Go; "" is react
	MaxTurns int    `json:"max_turns,omitempty"` // 0 means 20; at most 200

	// OnLimit says how a run ends at max_turns: OnLimitEnd, the default, after the tools of the
	// last response, or OnLimitAnswer, which makes the last model call without tools, so that the
	// run ends with an answer.
	OnLimit OnLimit `json:"on_limit,omitempty"`

	// Converse makes an answer without tool calls wait for the person's next
	// message (waiting_human_input) instead of ending the run.
	Converse bool `json:"converse,omitempty"`

	// ToolLoopThreshold ends a run (tool_loop) whose model makes the same calls with the same
	// arguments in this many consecutive responses (L3). 0 means 3 for reflect and never for the
	// others.
	ToolLoopThreshold int `json:"tool_loop_threshold,omitempty"`

	// Settings of reflect (L1, L2): the confidence that ends a run (default 0.85), whether it
	// reflects (default true), the number of turns from one reflection to the next (default 1),
	// whether the model gets the findings, and tools after which the run is complete.
	ConfidenceThreshold *float64 `json:"confidence_threshold,omitempty"`
	EnableReflection    *bool    `json:"enable_reflection,omitempty"`
	ReflectInterval     int      `json:"reflect_interval,omitempty"`
	TellGuidance        bool     `json:"tell_guidance,omitempty"`
	TerminalTools       []string `json:"terminal_tools,omitempty"`

	// MaxSteps of the first phase of two_phase; 0 means 5 (K1).
	MaxSteps int `json:"max_steps,omitempty"`
}

// OnLimit says how a run ends at its limit of turns.
type OnLimit string

// The ways to end at a limit. Empty is OnLimitEnd.
const (
	OnLimitEnd    OnLimit = "end"
	OnLimitAnswer OnLimit = "answer"
)

// Compaction says when and how the history is shortened for the model (A10, A18).
// Without one, the history is cut once, when a prompt was too long.
type Compaction struct {
	// At is the share of the model's window at which the history is compacted ahead of time; 0 is
	// never. Window is the size of that window in tokens.
	At     float64 `json:"at,omitempty"`
	Window int64   `json:"window,omitempty"`

	// Keep is the number of messages that stay at the end, each with its results; 0 means 4.
	Keep int `json:"keep,omitempty"`

	// Summarize has the agent's model summarize the rest in a separate call. Without it the rest is
	// cut, with a remark.
	Summarize bool `json:"summarize,omitempty"`

	// Reactive is how often the history is compacted because the provider rejected a prompt as too
	// long. Empty means ReactiveProgress.
	Reactive Reactive `json:"reactive,omitempty"`
}

// Reactive is a limit on the compactions that follow a prompt that was too long.
type Reactive string

const (
	// ReactiveOnce allows one until the next user message. It is the rule of an agent without
	// Compaction (A10).
	ReactiveOnce Reactive = "once"

	// ReactiveProgress allows another one after the model has accepted the shorter prompt and a tool
	// call has returned.
	ReactiveProgress Reactive = "progress"
)

// Tool is something that an agent can do.
type Tool = tool.Definition

// Hooks watch over the runs of an agent, at five points.
type Hooks struct {
	Input        []Hook `json:"input,omitempty"`         // before the first model call after a user message
	Stop         []Hook `json:"stop,omitempty"`          // when an answer would end the run (A8)
	StopFailure  []Hook `json:"stop_failure,omitempty"`  // when a model failure has ended it (A9)
	PreTool      []Hook `json:"pre_tool,omitempty"`      // before each tool call
	PostSampling []Hook `json:"post_sampling,omitempty"` // after each response, beside the turn (A13)

	// MaxStopBlocks bounds how often stop hooks send one run on; 0 means 15.
	MaxStopBlocks int `json:"max_stop_blocks,omitempty"`
}

// Hook is a callback invoked at one point of a run: the keys that hooks of all kinds have, and in
// Own those that only hooks of its kind have. YAML and JSON have both in one object.
type Hook struct {
	Kind string `json:"kind"` // go, nats, cel, or one registered in Go

	// Tools limits a pre_tool hook to calls of these tools; empty means all.
	Tools []string `json:"tools,omitempty"`

	// Timeout of one call of the hook; 0 means 10 s, for post_sampling 5 s.
	Timeout model.Duration `json:"timeout,omitempty"`

	// OnError is the decision if a hook fails or times out. "deny" is the default of input and
	// pre_tool: an input hook fails the run (input_hook_failed), a pre_tool hook denies the call; a
	// stop hook with "deny" fails the run (stop_hook_failed). "allow" is the default of stop. The
	// other points ignore failures.
	OnError string `json:"on_error,omitempty"`

	// Own is a JSON object of the keys that only hooks of this kind have; tool.EncodeSettings
	// encodes the settings of a kind.
	Own json.RawMessage `json:"-"`
}

type hookFields Hook

var hookKeys = keys.Of(reflect.TypeFor[Hook]())

// MarshalJSON writes the keys of the kind behind those of all kinds.
func (h Hook) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(hookFields(h))
	if err != nil {
		return nil, err
	}
	return keys.Join(b, h.Own)
}

// UnmarshalJSON keeps the keys that it does not know in Own, for the kind to read.
func (h *Hook) UnmarshalJSON(b []byte) error {
	var f hookFields
	err := json.Unmarshal(b, &f)
	if err != nil {
		return err
	}
	if f.Own, err = keys.Rest(b, hookKeys); err != nil {
		return err
	}
	*h = Hook(f)
	return nil
}

// Limits bound each run of an agent. A submission may tighten them.
type Limits struct {
	// MaxTurns is what loop.max_turns overrides (F3).
	MaxTurns int `json:"max_turns,omitempty"`

	// TokenBudget makes the agent work on towards a budget instead of ending with
	// its first answer (A11).
	TokenBudget *budget.Tokens `json:"token_budget,omitempty"`

	OutputTokens int64          `json:"output_tokens,omitempty"`
	TotalTokens  int64          `json:"total_tokens,omitempty"`
	CostUSD      state.MicroUSD `json:"cost_usd,omitempty"`
	Deadline     model.Duration `json:"deadline,omitempty"` // from submission
	Wait         model.Duration `json:"wait,omitempty"`     // for each wait
	Runs         int            `json:"runs,omitempty"`     // child runs and theirs; 0 means state.DefaultTreeRuns
	WarnAt       float64        `json:"warn_at,omitempty"`  // 0 means 0.8
}

// Defaults and ceilings.
const (
	DefaultMaxTurns = 20
	MaxMaxTurns     = 200
	AskUser         = tool.AskUser

	DefaultToolTimeout = 2 * time.Minute

	DefaultMaxSteps   = 5
	DefaultMaxDepth   = 10
	DefaultStopBlocks = 15

	DefaultOutputRetries = 2
	MaxOutputRetries     = 20
	MaxChildren          = 32 // child runs of one run at a time
)
