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

// Definition is an agent as its author writes it, in YAML or JSON. Parse refuses unknown keys.
type Definition struct {
	Name         string      `json:"name"`
	Description  string      `json:"description,omitempty"`
	Instructions string      `json:"instructions,omitempty"`
	Model        Model       `json:"model"`
	Loop         Loop        `json:"loop,omitzero"`
	Tools        []Tool      `json:"tools,omitempty"`
	Hooks        *Hooks      `json:"hooks,omitempty"`
	Limits       Limits      `json:"limits,omitzero"`
	Retention    Retention   `json:"retention,omitzero"` // bounds that of the deployment; a longer period has no effect
	Compaction   *Compaction `json:"compaction,omitempty"`

	// Webhook receives the events of runs whose submission names no webhook. It does not apply to runs of drafts and to
	// child runs.
	Webhook *state.Webhook `json:"webhook,omitempty"`

	// OutputSchema is a JSON Schema that the output of a completed run matches, unless the submission has another one,
	// which then takes its place. An answer that does not match is returned to the model, at most MaxOutputRetries
	// times after each user message; nil means 2, and 0 with single_call. Then the run fails (invalid_output).
	OutputSchema     json.RawMessage `json:"output_schema,omitempty"`
	MaxOutputRetries *int            `json:"max_output_retries,omitempty"`

	// Variables is a JSON Schema of an object. Each {{name}} of Instructions that is one of its properties is replaced
	// by a value from the submission. See [Agent.Instruct].
	Variables json.RawMessage `json:"variables,omitempty"`
}

// Model selects the model of an agent, with its settings.
type Model struct {
	Provider string `json:"provider"` // scripted, openai, anthropic, gemini, or one registered in Go
	Name     string `json:"name,omitempty"`
	BaseURL  string `json:"base_url,omitempty"`

	// API is one of responses and chat, for the provider openai. Empty means responses, or chat with a BaseURL, because
	// compatible servers implement that.
	API model.API `json:"api,omitempty"`

	APIKey          string `json:"api_key,omitempty"` // a reference: secret://NAME
	MaxOutputTokens int64  `json:"max_output_tokens,omitempty"`

	// Reasoning is the effort that the model spends on thinking before it answers: none, low, medium, high, xhigh or
	// max. Empty leaves it to the provider.
	Reasoning model.Effort `json:"reasoning,omitempty"`

	model.Settings

	// Fallback lists the models that take over, in this order. Each has its own settings, and none has a Fallback.
	Fallback []Model `json:"fallback,omitempty"`

	// Timeout bounds one model call; 0 means 10 minutes.
	Timeout model.Duration `json:"timeout,omitempty"`

	// Responses are those of the provider scripted, here or in a JSON or YAML file. Only [Load] reads the file; Compile
	// refuses a ResponsesFile.
	Responses     []model.Scripted `json:"responses,omitempty"`
	ResponsesFile string           `json:"responses_file,omitempty"`
}

// Loop selects the loop of an agent, with its settings.
type Loop struct {
	Type     string `json:"type,omitempty"`      // react (the default), single_call, reflect, two_phase, or registered in Go
	MaxTurns int    `json:"max_turns,omitempty"` // 0 means 20; at most 200

	// OnLimit selects the end of a run at max_turns, and of two_phase also at max_steps: OnLimitEnd, the default, after
	// the tools of the last response, or OnLimitAnswer, which makes the last model call without tools, to get an answer.
	OnLimit OnLimit `json:"on_limit,omitempty"`

	// Converse makes a run wait for the person's next message (waiting_human_input) after an answer without tool calls,
	// instead of ending.
	Converse bool `json:"converse,omitempty"`

	// ToolLoopThreshold is a number of consecutive responses, 2 or more: if the model makes the same calls with the same
	// arguments in all of them, in any order, the run ends (tool_loop) after the calls of the last one. Repetitions
	// within a response do not matter. 0 means 3 for reflect, and never for the other loops.
	ToolLoopThreshold int `json:"tool_loop_threshold,omitempty"`

	// Settings of reflect: the confidence that ends a run (default 0.85), whether the loop reflects (default true), the
	// number of turns from one reflection to the next if no call fails or repeats (default 1), whether the model is
	// told what a reflection found (default false), and the tools after which the run ends.
	ConfidenceThreshold *float64 `json:"confidence_threshold,omitempty"`
	EnableReflection    *bool    `json:"enable_reflection,omitempty"`
	ReflectInterval     int      `json:"reflect_interval,omitempty"`
	TellGuidance        bool     `json:"tell_guidance,omitempty"`
	TerminalTools       []string `json:"terminal_tools,omitempty"`

	// MaxSteps bounds the first phase of two_phase; 0 means 5 (K1).
	MaxSteps int `json:"max_steps,omitempty"`
}

// OnLimit selects the end of a run at its limit of turns.
type OnLimit string

// The ends of a run at its limit of turns. Empty means OnLimitEnd.
const (
	OnLimitEnd    OnLimit = "end"
	OnLimitAnswer OnLimit = "answer"
)

// Compaction configures when and how the history is shortened for the model. Without it, the history is cut after a
// prompt that was too long, once until the next user message or handoff; single_call has no history to cut.
type Compaction struct {
	// At is the share of the model's context window at which the history is compacted ahead of time, if the provider
	// reports the tokens of its responses; 0 means never. Window is the size of that window in tokens; At requires it.
	At     float64 `json:"at,omitempty"`
	Window int64   `json:"window,omitempty"`

	// Keep is the number of latest messages that stay, each with its tool results; 0 means 4.
	Keep int `json:"keep,omitempty"`

	// Summarize makes the agent's model summarize the other messages in a separate call. Without it they are removed,
	// with a remark.
	Summarize bool `json:"summarize,omitempty"`

	// Reactive bounds the compactions after the provider has rejected a prompt as too long. Empty means
	// ReactiveProgress.
	Reactive Reactive `json:"reactive,omitempty"`
}

// Reactive is a bound on compactions that follow a prompt that was too long.
type Reactive string

const (
	// ReactiveOnce allows one compaction until the next user message or handoff. It applies to agents without Compaction
	// (A10).
	ReactiveOnce Reactive = "once"

	// ReactiveProgress allows another compaction after the model has accepted the shorter prompt and a tool call has
	// returned.
	ReactiveProgress Reactive = "progress"
)

// Tool is one tool of an agent.
type Tool = tool.Definition

// Hooks are the hooks of an agent, at five points of its runs.
type Hooks struct {
	Input        []Hook `json:"input,omitempty"`         // before the first model call after a user message
	Stop         []Hook `json:"stop,omitempty"`          // when an answer would end the run (A8)
	StopFailure  []Hook `json:"stop_failure,omitempty"`  // when a model failure has ended it (A9)
	PreTool      []Hook `json:"pre_tool,omitempty"`      // before each tool call
	PostSampling []Hook `json:"post_sampling,omitempty"` // after each response, concurrently with the turn (A13)

	// MaxStopBlocks is the maximum number of times that stop hooks make one run continue, at most 100; 0 means 15. The
	// count begins again when a user message continues the run after an end.
	MaxStopBlocks int `json:"max_stop_blocks,omitempty"`
}

// Hook is a callback invoked at one point of a run. It has the keys that hooks of all kinds have, and in Own those that
// only hooks of its kind have. In YAML and JSON all keys are in one object.
type Hook struct {
	Kind string `json:"kind"` // go, nats, cel, or one registered in Go

	// Tools limits a pre_tool hook to calls of these tools; empty means all.
	Tools []string `json:"tools,omitempty"`

	// Timeout bounds one call of the hook; 0 means 10 s, for post_sampling 5 s.
	Timeout model.Duration `json:"timeout,omitempty"`

	// OnError is the decision if a hook fails or times out. "deny" is the default of input and pre_tool: an input hook
	// fails the run (input_hook_failed), a pre_tool hook denies the call. "allow" is the default of stop; with "deny" a
	// stop hook fails the run (stop_hook_failed). Hooks of the other points have no OnError, and their failures are
	// ignored.
	OnError string `json:"on_error,omitempty"`

	// Own is a JSON object of the keys that only hooks of this kind have; tool.EncodeSettings
	// encodes the settings of a kind.
	Own json.RawMessage `json:"-"`
}

type hookFields Hook

var hookKeys = keys.Of(reflect.TypeFor[Hook]())

// MarshalJSON writes the keys of the kind after those of all kinds.
func (h Hook) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(hookFields(h))
	if err != nil {
		return nil, err
	}
	return keys.Join(b, h.Own)
}

// UnmarshalJSON keeps unknown keys in Own, for the kind to decode.
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
	// MaxTurns bounds the turns of a run, unless loop.max_turns is set (F3).
	MaxTurns int `json:"max_turns,omitempty"`

	// TokenBudget makes a run continue towards a budget of tokens instead of ending with its first answer (A11).
	TokenBudget *budget.Tokens `json:"token_budget,omitempty"`

	OutputTokens int64          `json:"output_tokens,omitempty"`
	TotalTokens  int64          `json:"total_tokens,omitempty"`
	CostUSD      state.MicroUSD `json:"cost_usd,omitempty"`
	Deadline     model.Duration `json:"deadline,omitempty"` // from the submission
	Wait         model.Duration `json:"wait,omitempty"`     // of each wait
	Runs         int            `json:"runs,omitempty"`     // all descendants of a run; 0 means state.DefaultTreeRuns
	WarnAt       float64        `json:"warn_at,omitempty"`  // share of a limit, from 0 to 1; 0 means 0.8
}

// Defaults and maxima.
const (
	DefaultMaxTurns = 20
	MaxMaxTurns     = 200
	AskUser         = tool.AskUser

	DefaultToolTimeout = 2 * time.Minute

	DefaultMaxSteps   = 5
	DefaultMaxDepth   = 10
	DefaultStopBlocks = 15
	MaxMaxStopBlocks  = 100 // a block continues a run without a turn, so max_turns does not bound them

	DefaultOutputRetries = 2
	MaxOutputRetries     = 20
	MaxChildren          = 32 // child runs in flight of one run
)
