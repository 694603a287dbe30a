// Package agent holds the definitions of agents: what a user writes, checked and
// compiled into what loops and workers read.
package agent

import (
	"encoding/json"

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
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
}

// Model says which model an agent talks to.
type Model struct {
	Provider        string  `json:"provider"` // scripted, openai, anthropic
	Name            string  `json:"name,omitempty"`
	BaseURL         string  `json:"base_url,omitempty"`
	APIKey          string  `json:"api_key,omitempty"` // a reference: secret://NAME
	MaxOutputTokens int64   `json:"max_output_tokens,omitempty"`
	Fallback        []Model `json:"fallback,omitempty"`

	// Timeout of one model call; 0 means 10 minutes.
	Timeout model.Duration `json:"timeout,omitempty"`

	// Responses of the scripted provider, here or in a JSON or YAML file, which
	// is read when the definition is loaded by the command line.
	Responses     []model.Scripted `json:"responses,omitempty"`
	ResponsesFile string           `json:"responses_file,omitempty"`
}

// Loop says how an agent goes about its work.
type Loop struct {
	Type     string `json:"type,omitempty"`      // react, single_call, or a name registered in Go; "" is react
	MaxTurns int    `json:"max_turns,omitempty"` // 0 means 20; at most 200

	// Converse makes an answer without tool calls wait for the person's next
	// message (waiting_human_input) instead of ending the run.
	Converse bool `json:"converse,omitempty"`
}

// Kinds of tool.
const (
	KindGo     = "go"     // a function registered with the worker
	KindNATS   = "nats"   // a NATS micro service
	KindClient = "client" // the caller makes the call and sends the result as a signal
	KindHuman  = "human"  // asks a person; the answer is the result
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

	// Timeout of one call; 0 means 2 minutes.
	Timeout model.Duration `json:"timeout,omitempty"`

	// Concurrency is "parallel" (the default: runs beside its neighbours) or
	// "serial" (runs alone, in the order of the calls).
	Concurrency string `json:"concurrency,omitempty"`
}

// Approval is an approval rule. In YAML and JSON it may also be a boolean.
type Approval string

// Hooks are reserved; a definition that has any is refused until they exist.
type Hooks struct {
	Stop         []json.RawMessage `json:"stop,omitempty"`
	StopFailure  []json.RawMessage `json:"stop_failure,omitempty"`
	PreTool      []json.RawMessage `json:"pre_tool,omitempty"`
	PostSampling []json.RawMessage `json:"post_sampling,omitempty"`
}

// Limits bound each run of an agent. A submission may tighten them.
type Limits struct {
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
)
