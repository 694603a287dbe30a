package lookup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// MaxWarnings is the maximum number of warnings for one definition.
	MaxWarnings = 50

	// maxAsked bounds the agents and secrets looked up for one definition.
	maxAsked = 100
)

// Kind says what a Reference names.
type Kind string

// The kinds of things that a definition may refer to.
const (
	Tool   Kind = "tool"   // of a NATS service
	Hook   Kind = "hook"   // of a NATS service
	Agent  Kind = "agent"  // to which a tool delegates
	Secret Kind = "secret" // of the workers

	Variable Kind = "variable" // of the instructions
	Argument Kind = "argument" // of an HTTP tool
)

// Reference is one place of a definition that names something.
type Reference struct {
	Kind Kind
	Name string // of a hook, its subject
	At   string // the place in the definition

	subject string // of a service
	host    string // to which a secret would be sent; "" is a program
	usual   bool   // the workers' own key of a provider
}

var secretRef = regexp.MustCompile(`secret://([a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})`)

// References returns what the definition of a tenant's agent refers to, in a deployment with a
// prefix.
func References(a *agent.Agent, providers model.Specs, prefix, tenant string) []Reference {
	all := modelSecrets("model", a.Definition.Model, providers)
	if w := a.Definition.Webhook; w != nil {
		for _, ref := range w.Secret {
			all = append(all, Reference{Kind: Secret, Name: strings.TrimPrefix(ref, "secret://"), At: "webhook.secret", host: toolspec.HostPort(w.URL)})
		}
	}
	for i, m := range a.Definition.Model.Fallback {
		all = append(all, modelSecrets(fmt.Sprintf("model.fallback[%d]", i), m, providers)...)
	}
	for place, t := range a.All() {
		all = append(all, ofTool(place, t, prefix, tenant)...)
	}
	for _, p := range []hook.Point{hook.Input, hook.PreTool, hook.Stop, hook.StopFailure, hook.PostSampling} {
		for i, h := range a.Hooks(p) {
			if s, ok := h.Settings.(*hookspec.Service); ok {
				all = append(all, Reference{Kind: Hook, Name: s.Subject, At: fmt.Sprintf("hooks.%s[%d].subject", p, i), subject: s.Subject})
			}
		}
	}
	return all
}

func modelSecrets(place string, m agent.Model, providers model.Specs) []Reference {
	host := providers[m.Provider].Host
	if key := providers[m.Provider].Key; m.APIKey == "" && m.BaseURL == "" && key != "" {
		return []Reference{{Kind: Secret, Name: key, At: place + ".provider", host: host, usual: true}}
	}
	name, ok := strings.CutPrefix(m.APIKey, "secret://")
	if !ok {
		return nil
	}
	if m.BaseURL != "" {
		host = toolspec.HostPort(m.BaseURL)
	}
	return []Reference{{Kind: Secret, Name: name, At: place + ".api_key", host: host}}
}

func ofTool(place string, t *agent.CompiledTool, prefix, tenant string) (all []Reference) {
	if t.Kind == toolspec.NATS {
		all = append(all, Reference{Kind: Tool, Name: t.Name, At: place + ".name", subject: toolSubject(prefix, tenant, t.Name)})
	}
	if t.By == tool.ByChild || t.By == tool.ByHandoff {
		all = append(all, Reference{Kind: Agent, Name: t.Agent, At: place + ".agent"})
	}
	var own map[string]json.RawMessage
	if json.Unmarshal(t.Own, &own) != nil {
		return all
	}
	host := ""
	if len(t.Hosts) > 0 {
		host = t.Hosts[0]
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		for _, m := range secretRef.FindAllSubmatch(own[key], -1) {
			all = append(all, Reference{Kind: Secret, Name: string(m[1]), At: place + "." + key, host: host})
		}
	}
	return all
}

// toolSubject is the subject on which a tool of a tenant answers.
func toolSubject(prefix, tenant, name string) string {
	if tenant != "" && tenant != state.DefaultTenant {
		prefix += ".t." + tenant
	}
	return prefix + ".tool." + name
}

// Agents is where definitions are.
type Agents interface {
	Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error)
}

// Finder looks for the things that definitions refer to. It reveals nothing of one tenant to
// another: it searches agents among the tenant's own, and services below the root of its
// subjects.
type Finder struct {
	Prefix    string // of the deployment
	Providers model.Specs
	Agents    Agents

	// Services returns the subjects with a service for a tenant; nil skips services.
	Services func(ctx context.Context, tenant string) (map[string]bool, error)

	// Key returns nil if the workers have a secret that is their own key of a provider, for a
	// tenant's models without one, and otherwise an error with the remedy; nil skips keys.
	Key func(ctx context.Context, tenant, name, host string) error

	// Secret returns nil if a tenant has a secret for a host, and otherwise an error with the
	// remedy; nil skips secrets.
	Secret func(ctx context.Context, tenant, name, host string) error
}

// Missing is a Reference to something that the deployment lacks.
type Missing struct {
	Reference

	Why string // and what to do
}

// Missing returns the things that an agent refers to and that the deployment lacks, at most
// MaxWarnings. It does not report things whose lookup fails.
func (f *Finder) Missing(ctx context.Context, tenant string, a *agent.Agent) []Missing {
	missing := undeclared(a)
	known := map[Reference]string{}
	var services map[string]bool
	var asked bool
	for _, r := range References(a, f.Providers, f.Prefix, tenant) {
		if len(missing) >= MaxWarnings {
			break
		}
		what := Reference{Kind: r.Kind, Name: r.Name, host: r.host, usual: r.usual}
		why, done := known[what]
		switch {
		case done:
		case len(known) >= maxAsked:
			continue
		case r.subject != "":
			if !asked && f.Services != nil {
				services, _ = f.Services(ctx, tenant) // nil: it could not be found out
			}
			asked = true
			if services != nil && !services[r.subject] {
				why = noService(r)
			}
		case r.Kind == Agent && r.Name != a.Name:
			if _, err := f.Agents.Agent(ctx, tenant, r.Name, 0); errors.Is(err, state.ErrNotFound) {
				why = fmt.Sprintf("there is no agent %q, so calls of this tool fail: save it, or correct the name", r.Name)
			}
		case r.Kind == Secret:
			find := f.Secret
			if r.usual {
				find = f.Key
			}
			if find == nil {
				break
			}
			if err := find(ctx, tenant, r.Name, r.host); err != nil {
				why = err.Error()
			}
		}
		known[what] = why
		if why != "" {
			missing = append(missing, Missing{r, why})
		}
	}
	return missing[:min(len(missing), MaxWarnings)]
}

// undeclared returns the variables of the instructions and the arguments of HTTP tools that the definition uses and does
// not declare.
func undeclared(a *agent.Agent) (missing []Missing) {
	for _, name := range a.UndeclaredVariables() {
		missing = append(missing, Missing{
			Reference{Kind: Variable, Name: name, At: "instructions"},
			fmt.Sprintf("{{%[1]s}} is not a declared variable, so the model reads it with its braces: add %[1]q to variables.properties, or correct the name", name),
		})
	}
	for place, t := range a.All() {
		r, ok := t.Settings.(*toolspec.Request)
		if !ok || len(t.Schema) == 0 {
			continue
		}
		schema := map[string]json.RawMessage{}
		properties := map[string]json.RawMessage{}
		if json.Unmarshal(t.Schema, &schema) != nil || slices.ContainsFunc(indirect, func(key string) bool { return schema[key] != nil }) {
			continue
		}
		if schema["properties"] != nil && json.Unmarshal(schema["properties"], &properties) != nil {
			continue
		}
		for _, name := range r.Arguments() {
			if properties[name] == nil {
				missing = append(missing, Missing{
					Reference{Kind: Argument, Name: name, At: place + "." + r.Uses(name)},
					fmt.Sprintf("{%[1]s} is not an argument in the schema of this tool, and calls without it fail: add %[1]q to schema.properties, or correct the name", name),
				})
			}
		}
	}
	return missing
}

// indirect has the keywords with which a schema may allow properties that its own properties lack.
var indirect = []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}

func noService(r Reference) string {
	page := "docs/how-to/nats-tools.md"
	if r.Kind == Hook {
		page = "docs/how-to/hooks.md"
	}
	return fmt.Sprintf("there seems to be no service for the %s %s on the subject %s: start it, see %s. Ignore this warning if the service runs without the discovery protocol of NATS micro, which this check needs", r.Kind, r.Name, r.subject, page)
}

// Fault returns it as a fault of the definition, whose place agent.Locate finds.
func (m Missing) Fault() *agent.Fault { return &agent.Fault{At: m.At, Text: m.Why} }
