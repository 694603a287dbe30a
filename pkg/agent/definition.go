// Package agent holds the definitions of agents: what a user writes, checked and
// compiled into what loops and workers read.
package agent

import (
	"encoding/json"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/budget"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Definition is an agent as its author writes it, in YAML or JSON. Unknown keys
// are errors.
type Definition struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Instructions string          `json:"instructions,omitempty"`
	Model        Model           `json:"model"`
	Loop         Loop            `json:"loop,omitzero"`
	Tools        []Tool          `json:"tools,omitempty"`
	Hooks        *Hooks          `json:"hooks,omitempty"`
	Limits       Limits          `json:"limits,omitzero"`
	Compaction   *Compaction     `json:"compaction,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
}

// Model says which model an agent talks to.
type Model struct {
	Provider string `json:"provider"` // scripted, openai, anthropic, gemini
	Name     string `json:"name,omitempty"`
	BaseURL  string `json:"base_url,omitempty"`

	// API of the provider openai: responses or chat. Empty is responses, and chat
	// with a BaseURL, since that is what compatible servers speak.
	API model.API `json:"api,omitempty"`

	APIKey          string `json:"api_key,omitempty"` // a reference: secret://NAME
	MaxOutputTokens int64  `json:"max_output_tokens,omitempty"`

	// Reasoning is how much the model should think before it answers: none, low,
	// medium, high; "" leaves it to the provider.
	Reasoning model.Effort `json:"reasoning,omitempty"`

	Fallback []Model `json:"fallback,omitempty"`

	// Timeout of one model call; 0 means 10 minutes.
	Timeout model.Duration `json:"timeout,omitempty"`

	// Responses of the scripted provider, here or in a JSON or YAML file, which
	// is read when the definition is loaded by the command line.
	Responses     []model.Scripted `json:"responses,omitempty"`
	ResponsesFile string           `json:"responses_file,omitempty"`
}

// Loop says how an agent goes about its work.
type Loop struct {
	Type     string `json:"type,omitempty"`      // react, single_call, reflect, two_phase, or a name registered in Go; "" is react
	MaxTurns int    `json:"max_turns,omitempty"` // 0 means 20; at most 200

	// Converse makes an answer without tool calls wait for the person's next
	// message (waiting_human_input) instead of ending the run.
	Converse bool `json:"converse,omitempty"`

	// ToolLoopThreshold ends a run (tool_loop) whose model makes the same calls
	// with the same arguments in so many responses in a row (L3). 0 means 3 for
	// reflect and never for the others.
	ToolLoopThreshold int `json:"tool_loop_threshold,omitempty"`

	// Of reflect (L1, L2): the confidence that ends a run (default 0.85), whether
	// it reflects at all (default true), in every how many turns (default 1),
	// whether the model is told what was found, and tools after which the run is
	// complete.
	ConfidenceThreshold *float64 `json:"confidence_threshold,omitempty"`
	EnableReflection    *bool    `json:"enable_reflection,omitempty"`
	ReflectInterval     int      `json:"reflect_interval,omitempty"`
	TellGuidance        bool     `json:"tell_guidance,omitempty"`
	TerminalTools       []string `json:"terminal_tools,omitempty"`

	// MaxSteps of the first phase of two_phase; 0 means 5 (K1).
	MaxSteps int `json:"max_steps,omitempty"`
}

// Compaction says when and how the history is shortened for the model (A10, A18).
// Without one, the history is cut once, when a prompt was too long.
type Compaction struct {
	// At is the share of the model's window, in tokens, from which the history is
	// compacted ahead of time; 0 is never.
	At     float64 `json:"at,omitempty"`
	Window int64   `json:"window,omitempty"`

	// Keep is how many messages at the end stay, each with its results; 0 means 4.
	Keep int `json:"keep,omitempty"`

	// Summarize has the agent's model write what replaces the rest, in a call of
	// its own. Without it the rest is cut, with a remark.
	Summarize bool `json:"summarize,omitempty"`
}

// Kinds of tool.
const (
	KindGo     = "go"     // a function registered with the worker
	KindNATS   = "nats"   // a NATS micro service
	KindClient = "client" // the caller makes the call and sends the result as a signal
	KindHuman  = "human"  // asks a person; the answer is the result
	KindAgent  = "agent"  // another agent does it, in a run of its own
	KindA2A    = "a2a"    // a remote agent does it, over A2A
	KindHTTP   = "http"   // an HTTP request that the arguments fill in
	KindMCP    = "mcp"    // the tools of an MCP server
)

// Tool is something that an agent can do.
type Tool struct {
	Name        string          `json:"name"`
	Kind        string          `json:"kind,omitempty"` // "" is go
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`

	// Approval is "always", "never", or a CEL expression over args that says
	// whether a person must approve a call.
	Approval Approval `json:"approval,omitempty"`

	// Idempotent says that a second call with the same idempotency key does no
	// harm. A call of any other tool is started at most once (I4).
	Idempotent bool `json:"idempotent,omitempty"`

	// Reuse says that a call with the same arguments as an earlier one of the run
	// gets the earlier result (L7). Idempotent tools do so unless it is false, as
	// it should be where the answer may change: a reading of the clock, a look at
	// what another tool writes.
	Reuse *bool `json:"reuse,omitempty"`

	// Async says that the tool may answer later: it takes the call (pending), and
	// the run waits (waiting_tool) until the result comes as a signal.
	Async bool `json:"async,omitempty"`

	// MaxCalls bounds the calls of the tool in one run; 0 is no limit.
	MaxCalls int `json:"max_calls,omitempty"`

	// MaxResult bounds the bytes of a result that the model gets to see; 0 means
	// the worker's limit.
	MaxResult int `json:"max_result,omitempty"`

	// Agent of kind agent: who does it, and how many runs deep a chain of
	// delegations may be that uses this tool (D11); 0 means 10.
	Agent    string `json:"agent,omitempty"`
	MaxDepth int    `json:"max_depth,omitempty"`

	// URL of kind a2a: where the remote agent's card is. Token is a reference to what
	// is sent along as a bearer token: secret://NAME.
	URL   string `json:"url,omitempty"`
	Token string `json:"token,omitempty"`

	// URL, Method, Query and Headers of kind http: the template of a request, see
	// httptool.Request. Without a schema the arguments are those of the template, as
	// texts.
	Method  string            `json:"method,omitempty"`
	Query   map[string]string `json:"query,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`

	// Of kind mcp: the server is the program Command, with Env in its environment, or
	// URL, asked with Headers; see mcptool.Server. Allow names the tools of the server
	// that the agent has; none means all. Name, if not empty, stands with a _ before
	// their names. What else is said here goes for each of them.
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Allow   []string          `json:"allow,omitempty"`

	// Listed is the tool of an MCP server for which this one stands; see
	// Definition.WithListings.
	Listed *ListedTool `json:"-"`

	// Timeout of one call; 0 means 2 minutes.
	Timeout model.Duration `json:"timeout,omitempty"`

	// Concurrency is "parallel" (the default: runs beside its neighbours) or
	// "serial" (runs alone, in the order of the calls).
	Concurrency string `json:"concurrency,omitempty"`
}

// Approval is an approval rule. In YAML and JSON it may also be a boolean.
type Approval string

// Hooks watch over the runs of an agent, at four points.
type Hooks struct {
	Stop         []Hook `json:"stop,omitempty"`          // when an answer would end the run (A8)
	StopFailure  []Hook `json:"stop_failure,omitempty"`  // when a model failure has ended it (A9)
	PreTool      []Hook `json:"pre_tool,omitempty"`      // before each tool call
	PostSampling []Hook `json:"post_sampling,omitempty"` // after each response, beside the turn (A13)

	// MaxStopBlocks bounds how often stop hooks send one run on; 0 means 15.
	MaxStopBlocks int `json:"max_stop_blocks,omitempty"`
}

// Hook is somebody who is asked at a point.
type Hook struct {
	Kind    string `json:"kind"`              // go, nats, cel
	Name    string `json:"name,omitempty"`    // of kind go: as it is registered with the worker
	Subject string `json:"subject,omitempty"` // of kind nats

	// Of kind cel: if When holds, Then is what happens: approve (a person is
	// asked) or deny before a tool, block (the run goes on) or prevent (it ends) at
	// a stop. When is an expression over tool, args, turn and metadata, or over
	// output, turn and metadata.
	When    string `json:"when,omitempty"`
	Then    string `json:"then,omitempty"`
	Message string `json:"message,omitempty"`

	// Tools of pre_tool: the tools whose calls it is asked about; none means all.
	Tools []string `json:"tools,omitempty"`

	// Timeout of one question; 0 means 10 s, after a response 5 s.
	Timeout model.Duration `json:"timeout,omitempty"`

	// OnError is what a hook that fails or hangs amounts to: "deny", the default
	// before a tool (the call is not made; at a stop the run ends prevented), or
	// "allow", the default at a stop. At the other points a failure is nothing.
	OnError string `json:"on_error,omitempty"`
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
	WarnAt       float64        `json:"warn_at,omitempty"`  // 0 means 0.8
}

// Defaults and ceilings.
const (
	DefaultMaxTurns = 20
	MaxMaxTurns     = 200
	AskUser         = "ask_user" // reserved: a call asks the person, whether declared or not

	DefaultToolTimeout = 2 * time.Minute

	DefaultMaxSteps   = 5
	DefaultMaxDepth   = 10
	DefaultStopBlocks = 15
	MaxChildren       = 32 // child runs of one run at a time
)
