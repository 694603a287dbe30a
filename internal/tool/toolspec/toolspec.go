package toolspec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Names of the kinds.
const (
	Go      = "go"      // a function registered with the worker
	NATS    = "nats"    // a NATS micro service
	Client  = "client"  // the client makes the call and sends the result as a signal
	Human   = "human"   // asks a person; the answer is the result
	Agent   = "agent"   // another agent executes the task, in a child run
	Handoff = "handoff" // another agent continues the run
	A2A     = "a2a"     // a remote agent executes the task, over A2A
	HTTP    = "http"    // makes an HTTP request with the arguments
	MCP     = "mcp"     // the tools of an MCP server
	Memory  = "memory"  // files that are kept for later runs
	Results = "results" // reads results of the run that compaction has cut

	Provider = "provider" // a tool that the provider of the model runs
)

// Builtin returns a new map with the specs of the kinds that ship with Turnpike, by name. A program adds its own kinds
// to the map; a gateway needs nothing else of them.
func Builtin() tool.Specs {
	return tool.Specs{
		Go: goSpec, NATS: NATSSpec, Client: clientSpec, Human: humanSpec, Agent: agentSpec, Handoff: handoffSpec,
		A2A: A2ASpec, HTTP: HTTPSpec, MCP: MCPSpec, Memory: MemorySpec, Results: resultsSpec, Provider: providerSpec,
	}
}

// Kinds returns a new map with the kinds without external dependencies: functions in Go, by the name of the tool, and
// the kinds whose calls no worker executes. A worker adds other kinds to the map.
func Kinds(functions map[string]tool.Tool) tool.Kinds {
	return tool.Kinds{
		Go: Functions(functions), Client: tool.ExternalKind(clientSpec), Human: tool.ExternalKind(humanSpec), Agent: tool.ExternalKind(agentSpec),
		Handoff: tool.ExternalKind(handoffSpec), Results: tool.ExternalKind(resultsSpec),
		Provider: tool.ExternalKind(providerSpec),
	}
}

// Functions returns the kind of tools that are functions in Go, by the name of the tool. The caller must not change the
// map afterwards.
func Functions(functions map[string]tool.Tool) tool.Kind {
	return tool.KindOf(goSpec, func(ctx context.Context, _ tool.Bound, c tool.Call) (tool.Result, error) {
		f := functions[c.Name]
		if f == nil {
			return tool.Error(fmt.Sprintf("Tool %q is not registered with this worker. Continue without it; the operator must register it, or upgrade the worker", c.Name)), nil
		}
		return f.Call(ctx, c)
	})
}

var (
	goSpec = tool.SpecOf(func(tool.Definition, *struct{}) (tool.Needs, error) { return tool.Needs{Later: true}, nil })

	// NATSSpec is the Spec of the kind NATS.
	NATSSpec = tool.SpecOf(func(tool.Definition, *struct{}) (tool.Needs, error) {
		return tool.Needs{Later: true, Described: true}, nil
	})

	clientSpec = tool.SpecOf(func(d tool.Definition, _ *struct{}) (tool.Needs, error) {
		if len(d.Schema) == 0 {
			return tool.Needs{}, tool.Invalid("schema", "it is missing: a client tool needs a JSON Schema of its arguments")
		}
		return tool.Needs{By: tool.ByClient}, nil
	})

	humanSpec = tool.SpecOf(func(tool.Definition, *struct{}) (tool.Needs, error) {
		return tool.Needs{By: tool.ByPerson, Arguments: json.RawMessage(questionSchema)}, nil
	})

	agentSpec = tool.SpecOf(checkAgent)

	handoffSpec = tool.SpecOf(checkHandoff)

	resultsSpec = tool.SpecOf(checkResults)

	providerSpec = tool.SpecOf(checkHosted)

	// A2ASpec is the Spec of the kind A2A, with the settings Remote.
	A2ASpec = tool.SpecOf(checkRemote)

	// HTTPSpec is the Spec of the kind HTTP, with the settings Request.
	HTTPSpec = tool.SpecOf(checkRequest)

	// MCPSpec is the Spec of the kind MCP, with the settings Servers.
	MCPSpec = tool.SpecOf(checkServer)

	// MemorySpec is the Spec of the kind Memory, with the settings Files.
	MemorySpec = tool.SpecOf(checkFiles)
)

const (
	questionSchema = `{"type":"object","properties":{"question":{"type":"string"}},"required":["question"]}`

	reasonSchema = `{"type":"object","properties":{"reason":{"type":"string","description":"Why the other agent should continue."}}}`

	readSchema = `{"type":"object","properties":{"result":{"type":"string","description":"The id in the note that stands for the result."},"offset":{"type":"integer","minimum":0,"description":"The byte to begin at. Default 0."}},"required":["result"],"additionalProperties":false}`

	readPurpose = "Reads a result of an earlier tool call that was removed to fit the context. A long result comes in pieces: call again with the offset that the answer names."

	// taskSchema is the schema of the input of a child run.
	taskSchema = `{"type":"object","properties":{"task":{"type":"string","description":"What the agent is to do, with all that it has to know."}},"required":["task"]}`
)

// secretScheme begins the reference to a secret.
const secretScheme = "secret://"

var (
	secretPattern = regexp.MustCompile(`^secret://[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}$`)
	agentPattern  = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
)

// Delegate is the settings of the kind Agent: the agent of the child run, the maximum depth of a chain of delegations
// that uses the tool (D11), where 0 means 10, and a JSON object with the values of that agent's variables.
type Delegate struct {
	Agent     string          `json:"agent,omitempty"`
	MaxDepth  int             `json:"max_depth,omitempty"`
	Variables json.RawMessage `json:"variables,omitempty"`
}

// maxVariables is the maximum size of the values of the other agent's variables, in bytes. Submissions have the same
// limit.
const maxVariables = 64 << 10

func checkAgent(d tool.Definition, s *Delegate) (tool.Needs, error) {
	var errs []error
	if !agentPattern.MatchString(s.Agent) {
		errs = append(errs, tool.Invalid("agent", "%.80q is not the name of an agent: write one such as researcher, of up to 64 lower-case letters, digits, _ and -", s.Agent))
	}
	if s.MaxDepth < 0 {
		errs = append(errs, tool.Invalid("max_depth", "%d is negative: write 0 or more", s.MaxDepth))
	}
	if d.Idempotent || d.Timeout != 0 {
		errs = append(errs, errors.New("a tool of kind agent cannot have idempotent or timeout: remove them, and set limits in the other agent"))
	}
	if v := s.Variables; len(v) > 0 && v[0] != '{' {
		errs = append(errs, tool.Invalid("variables", "they are not an object: write one such as {name: value}"))
	}
	if n := len(s.Variables); n > maxVariables {
		errs = append(errs, tool.Invalid("variables", "they have %d bytes, at most %d are allowed: shorten them", n, maxVariables))
	}
	return tool.Needs{By: tool.ByChild, Agent: s.Agent, MaxDepth: s.MaxDepth, Variables: s.Variables, Arguments: json.RawMessage(taskSchema)}, errors.Join(errs...)
}

// Successor is the settings of the kind Handoff: the agent that continues the run.
type Successor struct {
	Agent string `json:"agent,omitempty"`
}

func checkHandoff(d tool.Definition, s *Successor) (tool.Needs, error) {
	var errs []error
	if !agentPattern.MatchString(s.Agent) {
		errs = append(errs, tool.Invalid("agent", "%.80q is not the name of an agent: write one such as researcher, of up to 64 lower-case letters, digits, _ and -", s.Agent))
	}
	if d.Idempotent || d.Timeout != 0 {
		errs = append(errs, errors.New("a tool of kind handoff cannot have idempotent or timeout, since it makes no call: remove them"))
	}
	needs := tool.Needs{By: tool.ByHandoff, Agent: s.Agent, Arguments: json.RawMessage(reasonSchema)}
	if s.Agent != "" { // without a name, only the missing agent is reported
		needs.DefaultName = "transfer_to_" + s.Agent
	}
	return needs, errors.Join(errs...)
}

func checkResults(d tool.Definition, _ *struct{}) (tool.Needs, error) {
	var errs []error
	if len(d.Schema) > 0 {
		errs = append(errs, tool.Invalid("schema", "the tool defines its own arguments: remove the schema"))
	}
	if d.Idempotent || d.Timeout != 0 {
		errs = append(errs, errors.New("a tool of kind results cannot have idempotent or timeout, since it makes no call: remove them"))
	}
	return tool.Needs{By: tool.ByHistory, Arguments: json.RawMessage(readSchema), Purpose: readPurpose}, errors.Join(errs...)
}

// Remote is the settings of the kind A2A: the URL of the remote agent's card, and a reference (secret://NAME) to its
// bearer token, which may be empty.
type Remote struct {
	URL   string `json:"url,omitempty"`
	Token string `json:"token,omitempty"`
}

func checkRemote(_ tool.Definition, s *Remote) (tool.Needs, error) {
	var errs []error
	if u, err := url.Parse(s.URL); err != nil || u.Host == "" || !web(u) {
		errs = append(errs, tool.Invalid("url", "%q is not an http or https URL: write one such as https://example.com/agent", s.URL))
	}
	if strings.Contains(s.URL, secretScheme) {
		errs = append(errs, tool.Invalid("url", "it contains a secret, which only token may: move it there"))
	}
	if s.Token != "" && !secretPattern.MatchString(s.Token) {
		// The error must not contain the token.
		errs = append(errs, tool.Invalid("token", "it is not a reference: write one such as secret://PARTNER_TOKEN, never the token itself"))
	}
	return tool.Needs{Remote: true, Arguments: json.RawMessage(taskSchema), Hosts: hosts(s.URL)}, errors.Join(errs...)
}

func checkRequest(_ tool.Definition, r *Request) (tool.Needs, error) {
	return tool.Needs{Arguments: textsSchema(r.Arguments()), Hosts: hosts(r.URL)}, r.Check()
}

// textsSchema returns the schema of an object with required strings of these names.
func textsSchema(names []string) json.RawMessage {
	text := map[string]string{"type": "string"}
	properties := map[string]any{}
	for _, n := range names {
		properties[n] = text
	}
	b, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": append([]string{}, names...)})
	if err != nil {
		return json.RawMessage(`{"type":"object"}`) // cannot happen: names always encode
	}
	return b
}

// Servers is the settings of the kind MCP: the server, and in Allow the names of its tools that the agent gets; empty
// means all. If the definition has a name, the agent sees each tool as NAME_TOOL. A name that models do not accept or
// that is reserved is changed, and then ends with a hash. The other keys of the definition apply to each of these tools;
// description and schema must be empty, because they come from the server.
type Servers struct {
	Server

	Allow []string `json:"allow,omitempty"`
}

func checkServer(d tool.Definition, s *Servers) (tool.Needs, error) {
	needs := tool.Needs{Hosts: hosts(s.URL)}
	if len(s.Command) > 0 {
		needs.Command = s.Command[0]
	}
	if d.Listed != nil {
		return needs, nil
	}
	needs.Source = true
	errs := []error{s.Check()}
	if d.Description != "" || len(d.Schema) > 0 {
		errs = append(errs, errors.New("description and schema come from the MCP server: remove them"))
	}
	for i, name := range s.Allow {
		if name == "" || slices.Contains(s.Allow[:i], name) {
			errs = append(errs, tool.Invalid("allow", "%q is empty or listed twice: remove it", name))
		}
	}
	return needs, errors.Join(errs...)
}

func web(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }

// HostPort returns the "host:port" of requests to a URL, with the default port of http or https; a URL with another
// scheme must have a port. The URL may be a template with arguments after the host. HostPort returns "" for a text that
// is not a URL with a host.
func HostPort(text string) string {
	scheme, rest, _ := strings.Cut(text, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || u.Host == "" {
		return ""
	}
	if u.Port() != "" {
		return u.Host
	}
	return strings.TrimSuffix(u.Host, ":") + map[string]string{"http": ":80", "https": ":443"}[strings.ToLower(u.Scheme)]
}

func hosts(text string) []string {
	if h := HostPort(text); h != "" {
		return []string{h}
	}
	return nil
}
