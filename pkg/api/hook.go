package api

import (
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// HookSettings are what an author has set for a hook: an address at which another system delivers
// webhooks, each of which starts a run or sends a signal.
//
// Filter and the expressions of Run and Signal are CEL over event (the body), headers (by their names in
// lower case), delivery (its id) and digest (SHA-256 of the body, in hex).
type HookSettings struct {
	// Verify is how the sender signs: github, stripe, slack or standard (Standard Webhooks).
	Verify string `json:"verify"`

	// Secret has references, secret://NAME, to the secrets that are valid: two while one is rotated.
	Secret SecretReferences `json:"secret"`

	Filter string      `json:"filter,omitempty"` // false: the delivery is accepted and ignored
	Run    *HookRun    `json:"run,omitempty"`
	Signal *HookSignal `json:"signal,omitempty"`

	// MaxPerMinute bounds the deliveries that one gateway accepts. Default 600.
	MaxPerMinute int `json:"max_per_minute,omitempty"`
}

// HookRun is how a delivery becomes a run.
type HookRun struct {
	Agent     string            `json:"agent"`
	Input     string            `json:"input,omitempty"`     // gives a text or a list of messages; default: event as JSON
	Key       string            `json:"key,omitempty"`       // gives a text; deliveries with the same key make one run
	Metadata  map[string]string `json:"metadata,omitempty"`  // each gives a text
	Variables string            `json:"variables,omitempty"` // gives an object
	Priority  string            `json:"priority,omitempty"`
}

// HookSignal is how a delivery becomes a signal. Together with Run it is sent to the run that an earlier
// delivery with the same key has started; without Run, its expression Run names the run.
type HookSignal struct {
	Run     string `json:"run,omitempty"`     // gives the id of a run
	Message string `json:"message,omitempty"` // gives a text
	Answer  string `json:"answer,omitempty"`  // gives a text; excludes Message
	Mode    string `json:"mode,omitempty"`    // of a message, as in SignalRequest
}

// Hook is a hook with its name and address.
type Hook struct {
	Name string `json:"name"`
	Path string `json:"path"` // of the address at which it takes deliveries

	HookSettings

	UpdatedAt state.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`
}

// HookResult is what a delivery resulted in.
type HookResult struct {
	RunID   string `json:"run_id,omitempty"`
	Ignored bool   `json:"ignored,omitempty"` // by the filter, or a test of the sender
}

// SecretReferences are references to secrets. JSON has a text, or a list.
type SecretReferences = state.SecretReferences
