package api

import (
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// APIKey is an API key without its text.
type APIKey struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`   // purpose of the key, for people
	Tenant    string     `json:"tenant"` // "*" means the whole deployment
	Roles     []string   `json:"roles"`
	CreatedBy string     `json:"created_by"`
	CreatedAt state.Time `json:"created_at"`
	ExpiresAt state.Time `json:"expires_at"` // null means never
}

// KeyRequest is a request for an API key.
type KeyRequest struct {
	Name      string     `json:"name"`
	Tenant    string     `json:"tenant"` // default: the tenant of the caller
	Roles     []string   `json:"roles"`
	ExpiresAt state.Time `json:"expires_at"`
}

// NewKey is a new API key with its text, tp_<id>_<secret>, which cannot be retrieved again.
type NewKey struct {
	APIKey

	Key string `json:"key"`
}

// TokenRequest is a request for a token of an end user.
type TokenRequest struct {
	// User identifies the person in the caller's own system, without spaces. The token can read and continue the runs
	// whose metadata has this value under the key user; the runs that it starts get that metadata.
	User string `json:"user"`

	Roles []string `json:"roles"` // of viewer, submitter and approver

	// Agents limits the token to these agents: it may start their runs, and read and continue those runs of its user
	// and their descendants. Nil means all agents; the gateway refuses an empty list. Run limits the token to one run
	// and its descendants. Only one of Agents and Run may be set, and a token with Run cannot start runs.
	Agents []string `json:"agents,omitzero"`
	Run    string   `json:"run,omitempty"`

	ExpiresIn *model.Duration `json:"expires_in,omitempty"` // from 1s to 24h; nil means 15m
}

// Token describes a token of an end user.
type Token struct {
	ID        string     `json:"id"`
	User      string     `json:"user"`
	Tenant    string     `json:"tenant"`
	Roles     []string   `json:"roles"`
	Agents    []string   `json:"agents,omitempty"` // empty means all
	Run       string     `json:"run,omitempty"`
	CreatedBy string     `json:"created_by"` // the API key that issued the token; the token becomes invalid with it
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

// TokenKeys are the keys whose tokens are valid, newest first.
type TokenKeys struct {
	Keys []TokenKey `json:"keys"`
}

// TenantSettings are the settings of a tenant, which an admin of the deployment makes.
type TenantSettings struct {
	// FourEyes prevents principals from approving a call of a run if they have requested something in that
	// run, its ancestors, its ended child runs, or the runs that it was forked from. To request is to submit
	// the run, to send it a message, an answer or a result, or to edit a call. The principals that last
	// stored a schedule, a hook or a trigger, or paused or resumed a schedule, also request what it does.
	FourEyes bool `json:"four_eyes"`

	// Review keeps each definition that an author saves as a draft that no run can use, until another author or an
	// admin publishes it.
	Review bool `json:"review"`

	// Suspended lets principals of the tenant only read and cancel. Admins of the deployment may act for the tenant.
	Suspended bool `json:"suspended"`

	// These lists name the resources that agents of the tenant may use. A missing list allows everything that the
	// deployment allows; an empty list allows nothing.
	//
	// Hosts are those that tools, models with a base_url and webhooks may reach: example.com, *.example.com,
	// example.com:8443, 10.1.0.0/16 or *. Models are names such as claude-*, or provider/name. MCPCommands are the
	// programs of MCP tools, as the first words of their commands. Secrets are those that definitions may name.
	// ProviderTools are the tools of model providers: web_search, provider/web_search or *.
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

	// Webhook receives the events of runs whose submission and agent name no webhook, except
	// runs of drafts and child runs. It applies to runs submitted two seconds or more after it was set.
	Webhook *state.Webhook `json:"webhook,omitempty"`
}

// TenantSecret is a secret that the agents of a tenant may name.
type TenantSecret struct {
	Name string `json:"name"`

	// Hosts are patterns of the hosts that may receive the secret; empty means all hosts, and programs.
	Hosts []string `json:"hosts,omitempty"`
}

// TenantStream is a stream that triggers of a tenant may read. No name allows Turnpike's own streams, copies of them,
// or buckets.
type TenantStream struct {
	Name string `json:"name"` // each * matches any text

	// Subjects are those that triggers may read, such as orders.acme.>; empty means all.
	Subjects []string `json:"subjects,omitempty"`
}

// Tenant is a tenant with its settings.
type Tenant struct {
	Name string `json:"name"`

	TenantSettings
}

// AuditEntry is one change in the audit: its time, its principal, and what it changed.
type AuditEntry struct {
	At     state.Time `json:"at"`
	By     state.By   `json:"by"`
	Action string     `json:"action"` // run.submit, agent.put, ...
	Target string     `json:"target"` // id or name of the changed resource

	// Outcome is OutcomeUnknown if the request failed for a reason that does not reveal whether it took effect, or if
	// it failed after the client had disconnected. It is empty for completed requests, and for run.cancel_many, whose
	// entry is stored before the first run is cancelled. Other failed requests have no entry: they had no effect.
	Outcome string `json:"outcome,omitempty"`
}

// OutcomeUnknown is the outcome of a change that may have been made.
const OutcomeUnknown = "unknown"

// Identity is the principal of a request, in one tenant.
type Identity struct {
	Principal string   `json:"principal"`
	Via       string   `json:"via"` // none, key, oidc, token
	Tenant    string   `json:"tenant"`
	Roles     []string `json:"roles"`   // in the tenant
	Tenants   []string `json:"tenants"` // in which the principal has roles; "*" means all
}

// SessionRequest requests a session for the owner of an API key.
type SessionRequest struct {
	Key string `json:"key"`
}

// Session describes the ways to log in with a browser, and the principal that has logged in.
type Session struct {
	Ways      []string   `json:"ways"`      // key, oidc; empty if no login is needed
	Principal string     `json:"principal"` // empty before a login
	Tenants   []string   `json:"tenants"`   // in which the principal has roles; "*" means all
	ExpiresAt state.Time `json:"expires_at"`
}
