package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Policy is the set of resources that the agents of one tenant may use. It is immutable. The zero
// value allows everything.
type Policy struct {
	tenant   string
	settings *api.TenantSettings // nil: everything is allowed
}

// Of returns the policy of a tenant whose settings pass CheckSettings.
func Of(tenant string, settings api.TenantSettings) Policy {
	if settings.Hosts == nil && settings.Models == nil && settings.MCPCommands == nil && settings.Secrets == nil && settings.ProviderTools == nil {
		return Policy{tenant: tenant}
	}
	return Policy{tenant, &settings}
}

// RefusedError reports a resource that a tenant's agents may not use.
type RefusedError struct {
	Tenant string
	Field  string // the field of the tenant's settings, such as hosts
	Text   string
}

func (e *RefusedError) Error() string {
	sep := ": "
	if strings.HasSuffix(e.Text, ", or") {
		sep = " " // the text already has a remedy
	}
	return fmt.Sprintf("%s%sask an admin of the deployment to change %s of tenant %s", e.Text, sep, e.Field, e.Tenant)
}

func (p Policy) refuse(field, format string, args ...any) error {
	return &RefusedError{Tenant: p.tenant, Field: field, Text: fmt.Sprintf(format, args...)}
}

// Host returns nil if agents may send requests to a "host:port", else a *RefusedError.
func (p Policy) Host(hostport string) error {
	if p.settings == nil || p.settings.Hosts == nil || matches(p.settings.Hosts, hostport) {
		return nil
	}
	return p.refuse("hosts", "host %.200s is not among those that agents of tenant %s may reach (%s)", hostport, p.tenant, listed(p.settings.Hosts))
}

func matches(patterns []string, hostport string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return MatchHost(pattern, hostport) })
}

// Model returns nil if agents may use a model of a provider, else a *RefusedError. A pattern with a / is compared with
// "provider/name", others with the name, or with the provider if the name is empty; * in a pattern matches any text.
func (p Policy) Model(provider, name string) error {
	if p.settings == nil || p.settings.Models == nil {
		return nil
	}
	whole := provider + "/" + name
	if name == "" {
		name = provider // a script needs no name
	}
	for _, pattern := range p.settings.Models {
		if glob(pattern, whole) || !strings.Contains(pattern, "/") && glob(pattern, name) {
			return nil
		}
	}
	return p.refuse("models", "model %.200s is not among those that agents of tenant %s may use (%s)", whole, p.tenant, listed(p.settings.Models))
}

// ProviderTool returns nil if agents may use a tool that a model's provider runs, else a *RefusedError. A pattern with
// a / is compared with "provider/tool", others with the name of the tool; * in a pattern matches any text.
func (p Policy) ProviderTool(provider, name string) error {
	if p.settings == nil || p.settings.ProviderTools == nil {
		return nil
	}
	whole := provider + "/" + name
	for _, pattern := range p.settings.ProviderTools {
		if glob(pattern, whole) || !strings.Contains(pattern, "/") && glob(pattern, name) {
			return nil
		}
	}
	return p.refuse("provider_tools", "tool %.200s is not among the providers' tools that agents of tenant %s may use (%s)", whole, p.tenant, listed(p.settings.ProviderTools))
}

// glob reports whether a pattern matches text; * in it matches any text.
func glob(pattern, text string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	last := len(parts) - 1
	for _, part := range parts[:last] {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, parts[last])
}

// Command returns nil if workers may start a program for agents, else a *RefusedError. program is the first word of a
// command.
func (p Policy) Command(program string) error {
	if p.settings == nil || p.settings.MCPCommands == nil || slices.Contains(p.settings.MCPCommands, program) || slices.Contains(p.settings.MCPCommands, "*") {
		return nil
	}
	return p.refuse("mcp_commands", "program %.200q is not among those that agents of tenant %s may start (%s)", program, p.tenant, listed(p.settings.MCPCommands))
}

// Secret returns nil if agents may use a secret for requests to a "host:port", else a *RefusedError. An empty hostport
// stands for a program that the worker starts.
func (p Policy) Secret(name, hostport string) error {
	if p.settings == nil || p.settings.Secrets == nil {
		return nil
	}
	b := p.binding(name)
	switch {
	case b == nil:
		return p.refuse("secrets", "secret %s is not among those that agents of tenant %s may name", name, p.tenant)
	case len(b.Hosts) == 0 || matches(b.Hosts, hostport):
		return nil
	default:
		return p.refuse("secrets", "%v", Bound(name, hostport, b.Hosts))
	}
}

// Names reports whether the settings of the tenant list a secret.
func (p Policy) Names(name string) bool {
	return p.settings != nil && p.binding(name) != nil
}

func (p Policy) binding(name string) *api.TenantSecret {
	for i, b := range p.settings.Secrets {
		if b.Name == name {
			return &p.settings.Secrets[i]
		}
	}
	return nil
}

// Bound returns the error for a secret that must be sent only to other hosts than hostport. An empty hostport stands
// for a program.
func Bound(name, hostport string, hosts []string) error {
	to := "must not be sent to " + hostport
	if hostport == "" {
		to = "must not be given to a program"
	}
	return fmt.Errorf("secret %s is for the hosts %s only and %.220s", name, strings.Join(hosts, ", "), to)
}

func listed(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	const most = 10
	if len(all) > most {
		return strings.Join(all[:most], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}

var secretRef = regexp.MustCompile(`secret://([a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})`)

// Webhook returns nil if events may be sent to a webhook, and otherwise an error that joins one *RefusedError for each
// refused field, preceded by prefix and the name of the field.
func (p Policy) Webhook(prefix string, w state.Webhook) error {
	var errs []error
	fault := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%s: %w", prefix, field, err))
		}
	}
	host := toolspec.HostPort(w.URL)
	fault("url", p.Host(host))
	for _, ref := range w.Secret {
		fault("secret", p.Secret(strings.TrimPrefix(ref, "secret://"), host))
	}
	return errors.Join(errs...)
}

// Check returns nil if the tenant may have an agent. Otherwise its error joins a *RefusedError for each resource that
// the agent may not use, up to 50 (maxFaults), preceded by its place in the definition. providers has the default
// hosts of the providers.
func (p Policy) Check(a *agent.Agent, providers model.Specs) error {
	if p.settings == nil {
		return nil
	}
	var errs []error
	fault := func(place string, err error) {
		if err != nil && len(errs) < maxFaults {
			errs = append(errs, fmt.Errorf("%s: %w", place, err))
		}
	}
	models := func(place string, m agent.Model) {
		fault(place, p.Model(m.Provider, m.Name))
		host := providers[m.Provider].Host
		if m.BaseURL != "" {
			host = toolspec.HostPort(m.BaseURL)
			fault(place+".base_url", p.Host(host))
		}
		if name, ok := strings.CutPrefix(m.APIKey, "secret://"); ok {
			fault(place+".api_key", p.Secret(name, host))
		}
	}
	models("model", a.Definition.Model)
	for i, m := range a.Definition.Model.Fallback {
		models("model.fallback["+strconv.Itoa(i)+"]", m)
	}
	if w := a.Definition.Webhook; w != nil {
		if err := p.Webhook("webhook.", *w); err != nil {
			errs = append(errs, err)
		}
	}
	for place, t := range a.All() {
		if t.By == tool.ByProvider {
			for i := 0; a.ModelAt(i) != nil; i++ {
				fault(place+".name", p.ProviderTool(a.ModelAt(i).Provider, t.Name))
			}
			continue
		}
		if t.Command != "" {
			fault(place+".command", p.Command(t.Command))
		}
		to := t.Hosts
		for _, host := range to {
			fault(place+".url", p.Host(host))
		}
		if len(to) == 0 {
			to = []string{""}
		}
		for _, name := range secretsIn(t.Own) {
			for _, host := range to {
				fault(place, p.Secret(name, host))
			}
		}
	}
	return errors.Join(errs...)
}

// maxFaults is the maximum number of mistakes in an error.
const maxFaults = 50

// secretsIn returns the names of the secrets that the settings of a tool refer to.
func secretsIn(own json.RawMessage) []string {
	var names []string
	for _, m := range secretRef.FindAllSubmatch(own, -1) {
		if name := string(m[1]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

var secretName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}$`)

// maxMetadataKey is the maximum length of a metadata key of a run, in bytes.
const maxMetadataKey = 255

// CheckSettings returns an error that joins the mistakes in a tenant's settings, each with the name of its field.
func CheckSettings(tenant string, s api.TenantSettings) error {
	var errs []error
	fault := func(place string, i int, err error) {
		if err != nil && len(errs) < maxFaults {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", place, i, err))
		}
	}
	if s.Webhook != nil {
		if err := s.Webhook.Check(); err != nil {
			errs = append(errs, fmt.Errorf("webhook: %w", err))
		}
		if err := Of(tenant, s).Webhook("webhook.", *s.Webhook); err != nil {
			errs = append(errs, err)
		}
	}
	for i, pattern := range s.Hosts {
		fault("hosts", i, CheckPattern(pattern))
	}
	for i, pattern := range s.Models {
		if strings.TrimSpace(pattern) == "" {
			fault("models", i, errors.New("a pattern is empty: write one such as claude-*, openai/* or *"))
		}
	}
	for i, pattern := range s.ProviderTools {
		_, name, whole := strings.Cut(pattern, "/")
		if !whole {
			name = pattern
		}
		if !strings.Contains(name, "*") && !model.IsProviderTool(name) {
			fault("provider_tools", i, fmt.Errorf("%.200q is not a tool of a provider: write one of %s, one of them with its provider, as in anthropic/web_search, or *", pattern, strings.Join(model.ProviderTools(), ", ")))
		}
	}
	for i, program := range s.MCPCommands {
		if program == "" {
			fault("mcp_commands", i, errors.New("a program is empty: write the first word of the command, such as npx, or * for any program"))
		}
	}
	for i, secret := range s.Secrets {
		if !secretName.MatchString(secret.Name) {
			fault("secrets", i, fmt.Errorf("name: %.200q is not the name of a secret: write it without secret://, such as OPENAI_API_KEY, in 1 to 128 letters, digits, _, . and -, and begin with a letter, a digit or _", secret.Name))
		}
		if slices.ContainsFunc(s.Secrets[:i], func(before api.TenantSecret) bool { return before.Name == secret.Name }) {
			fault("secrets", i, fmt.Errorf("name: %.200q is listed twice: remove one", secret.Name))
		}
		for n, pattern := range secret.Hosts {
			if err := CheckPattern(pattern); err != nil {
				fault("secrets", i, fmt.Errorf("hosts[%d]: %w", n, err))
			}
		}
	}
	for i, stream := range s.Streams {
		fault("streams", i, checkStream(stream))
	}
	for i, key := range s.IndexedMetadata {
		switch {
		case i == state.MaxIndexed:
			fault("indexed_metadata", i, fmt.Errorf("there are %d keys, at most %d are allowed: remove some", len(s.IndexedMetadata), state.MaxIndexed))
		case key == "" || len(key) > maxMetadataKey:
			fault("indexed_metadata", i, fmt.Errorf("the key %.200q has %d bytes: use 1 to %d", key, len(key), maxMetadataKey))
		case slices.Contains(s.IndexedMetadata[:i], key):
			fault("indexed_metadata", i, fmt.Errorf("the key %.200q is listed twice: remove one", key))
		}
	}
	return errors.Join(errs...)
}
