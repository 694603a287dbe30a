package api

import (
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// HookSettings are the settings of a hook: an address at which another system delivers webhooks. Each webhook that
// Filter does not ignore starts a run or sends a signal. At least one of Run and Signal is required.
//
// Filter and the expressions of Run and Signal are CEL over event (the body), headers (by their names in lower case),
// delivery (its id) and digest (SHA-256 of the body, in hexadecimal digits).
type HookSettings struct {
	// Verify names the sender's signature scheme: github, stripe, slack or standard (Standard Webhooks).
	Verify string `json:"verify"`

	// Secret has one to three references, secret://NAME, to the secrets that are valid: more than one during a
	// rotation.
	Secret SecretReferences `json:"secret"`

	Filter string      `json:"filter,omitempty"` // returns false for deliveries that are accepted and ignored; empty: none
	Run    *HookRun    `json:"run,omitempty"`
	Signal *HookSignal `json:"signal,omitempty"`

	// MaxPerMinute bounds the signed deliveries that each gateway accepts in any 60 seconds, from 1 to 60,000. As many may
	// come at once. Default 600.
	MaxPerMinute int `json:"max_per_minute,omitempty"`
}

// HookRun describes the run of a delivery.
type HookRun struct {
	Agent     string            `json:"agent"`
	Input     string            `json:"input,omitempty"`     // returns a text or a list of messages; default: event as JSON
	Key       string            `json:"key,omitempty"`       // returns a text: one run for each; default: delivery id
	Metadata  map[string]string `json:"metadata,omitempty"`  // each returns a text
	Variables string            `json:"variables,omitempty"` // returns an object
	Priority  string            `json:"priority,omitempty"`
}

// HookSignal describes the signal of a delivery. Without a HookRun in the settings, the expression Run names the run. A
// HookRun must have a Key then: the first delivery with a key starts a run and sends no signal, and the later ones send
// the signal to that run. Exactly one of Message and Answer is required.
type HookSignal struct {
	Run     string `json:"run,omitempty"`     // returns the id of a run
	Message string `json:"message,omitempty"` // returns a text
	Answer  string `json:"answer,omitempty"`  // returns a text; excludes Message
	Mode    string `json:"mode,omitempty"`    // of a message: ModeEnqueue (the default), ModeInterrupt or ModeReject
}

// Hook is a hook with its name and its path.
type Hook struct {
	Name string `json:"name"`
	Path string `json:"path"` // path of the URL for deliveries

	HookSettings

	UpdatedAt state.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`

	// Warnings are set when the settings are stored: see SavedAgent.
	Warnings []Warning `json:"warnings,omitempty"`
}

// HookResult is the result of a delivery.
type HookResult struct {
	RunID   string `json:"run_id,omitempty"`  // the run that was started or that the signal was sent to
	Ignored bool   `json:"ignored,omitempty"` // the filter is false, or the delivery is the sender's test
}

// SecretReferences are references to secrets. JSON has one text, or a list.
type SecretReferences = state.SecretReferences
