package api

import (
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// APIKey is a key as its owner and admins see it: without its secret.
type APIKey struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`   // what it is for
	Tenant    string     `json:"tenant"` // "*" is the deployment
	Roles     []string   `json:"roles"`
	CreatedBy string     `json:"created_by"`
	CreatedAt state.Time `json:"created_at"`
	ExpiresAt state.Time `json:"expires_at"` // null is never
}

// KeyRequest is a request for a key.
type KeyRequest struct {
	Name      string     `json:"name"`
	Tenant    string     `json:"tenant"` // default: that of the caller
	Roles     []string   `json:"roles"`
	ExpiresAt state.Time `json:"expires_at"`
}

// NewKey is a key with its text, tp_<id>_<secret>, which cannot be retrieved again.
type NewKey struct {
	APIKey

	Key string `json:"key"`
}

// TokenRequest is a request for a token of an end user.
type TokenRequest struct {
	// User is the name that the person has in the system of the caller, without spaces. The token reads
	// and continues the runs whose metadata has it under the key user; its own runs get that.
	User string `json:"user"`

	Roles []string `json:"roles"` // viewer, submitter, approver

	// Agents are those whose runs the token may start and read; empty is any. Run limits it to one
	// run, and to the runs below that.
	Agents []string `json:"agents,omitempty"`
	Run    string   `json:"run,omitempty"`

	ExpiresIn model.Duration `json:"expires_in,omitzero"` // default 15m, at most 24h
}

// Token describes a token of an end user.
type Token struct {
	ID        string     `json:"id"`
	User      string     `json:"user"`
	Tenant    string     `json:"tenant"`
	Roles     []string   `json:"roles"`
	Agents    []string   `json:"agents,omitempty"` // empty is any
	Run       string     `json:"run,omitempty"`
	CreatedBy string     `json:"created_by"` // the API key with which the token ends
	ExpiresAt state.Time `json:"expires_at"`
}

// NewToken is a token with its text, which cannot be retrieved again.
type NewToken struct {
	Token

	Text string `json:"token"`
}

// TokenKey is a key that signs tokens, without its secret.
type TokenKey struct {
	ID        string     `json:"id"`
	CreatedAt state.Time `json:"created_at"`
}

// TokenKeys are the keys whose tokens are valid, the newest first.
type TokenKeys struct {
	Keys []TokenKey `json:"keys"`
}

// TenantSettings are what an admin of the deployment has set for a tenant.
type TenantSettings struct {
	// FourEyes prevents principals from approving a call of a run that they have submitted or
	// requested something in: the run, one above it, or those that it was forked from.
	FourEyes bool `json:"four_eyes"`

	// Review keeps what authors save as a draft that no run uses, until another person publishes
	// it.
	Review bool `json:"review"`

	// Suspended lets the tenant read and cancel, and nothing else.
	Suspended bool `json:"suspended"`

	// The resources that agents of the tenant may use. A missing list allows everything that the
	// deployment allows; an empty list allows nothing.
	//
	// Hosts are those that models with a base_url and tools may reach: example.com,
	// *.example.com, example.com:8443, 10.1.0.0/16 or *. Models are names such as claude-*, or
	// provider/name. MCPCommands are the programs of MCP tools, as they stand first in a
	// command. Secrets are those that definitions may name. ProviderTools are the tools of model
	// providers: web_search, provider/web_search or *.
	Hosts       []string       `json:"hosts,omitzero"`
	Models      []string       `json:"models,omitzero"`
	MCPCommands []string       `json:"mcp_commands,omitzero"`
	Secrets     []TenantSecret `json:"secrets,omitzero"`

	ProviderTools []string `json:"provider_tools,omitzero"`

	// Streams lists the JetStream streams that triggers of the tenant may read. An empty list allows none, and so
	// does a missing one, with one exception: the default tenant of the gateway may read every stream while no other
	// tenant is stored. A tenant is stored when an admin puts it or when it is first used. No list allows Turnpike's
	// own streams, copies of them, or buckets.
	Streams []TenantStream `json:"streams,omitzero"`

	// IndexedMetadata lists up to four metadata keys. A list of runs with a given value of one of them examines only
	// the runs with that value. Each key takes up to 0.2 KB of the store for each run that has it. A key applies to
	// runs submitted one minute or more after it was added; a list still examines all older runs.
	IndexedMetadata []string `json:"indexed_metadata,omitempty"`

	// Webhook receives the events of runs for which neither the submission nor the agent names a webhook, except
	// runs of drafts and child runs. It applies to runs submitted two seconds or more after it was set.
	Webhook *state.Webhook `json:"webhook,omitempty"`
}

// TenantSecret is a secret that the agents of a tenant may name.
type TenantSecret struct {
	Name string `json:"name"`

	// Hosts are those that it may be sent to, as patterns; empty is any, and programs.
	Hosts []string `json:"hosts,omitempty"`
}

// TenantStream is a stream that triggers of a tenant may read. No name allows Turnpike's own streams, copies of them,
// or buckets.
type TenantStream struct {
	Name string `json:"name"` // * in it is any text

	// Subjects are those that triggers may read, such as orders.acme.>; empty is all.
	Subjects []string `json:"subjects,omitempty"`
}

// Tenant is a tenant with its settings.
type Tenant struct {
	Name string `json:"name"`

	TenantSettings
}

// AuditEntry says who did what.
type AuditEntry struct {
	At     state.Time `json:"at"`
	By     state.By   `json:"by"`
	Action string     `json:"action"` // run.submit, agent.put, ...
	Target string     `json:"target"` // the id or name of what it was done to

	// Outcome is "unknown" if the request failed for a reason that does not reveal whether it took
	// effect, or the client disconnected before the answer. It is empty for completed requests.
	Outcome string `json:"outcome,omitempty"`
}

// OutcomeUnknown is that of a change which may have been made.
const OutcomeUnknown = "unknown"

// Identity is the sender of a request.
type Identity struct {
	Principal string   `json:"principal"`
	Via       string   `json:"via"` // none, key, oidc, token
	Tenant    string   `json:"tenant"`
	Roles     []string `json:"roles"`   // in the tenant
	Tenants   []string `json:"tenants"` // in which the principal has roles; "*" is each
}

// SessionRequest exchanges an API key for a session.
type SessionRequest struct {
	Key string `json:"key"`
}

// Session describes how people log in with a browser, and who has logged in.
type Session struct {
	Ways      []string   `json:"ways"`      // key, oidc; none where nobody has to
	Principal string     `json:"principal"` // empty: nobody has logged in
	Tenants   []string   `json:"tenants"`   // in which the principal has roles; "*" is each
	ExpiresAt state.Time `json:"expires_at"`
}
