package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// Definitions is where agents and tenants are.
type Definitions interface {
	state.Agents
	state.Documents
}

// maxAgents is the maximum number of agents to check, over all tenants.
const maxAgents = 1000

// Finder returns a finder for the things that agents refer to, in a deployment with a prefix: its
// services, its agents, and the secrets that this process would have as a worker.
func Finder(nc *nats.Conn, prefix string, store Definitions, secretsDir string) *lookup.Finder {
	policies := policy.NewReader(store)
	return &lookup.Finder{
		Prefix: prefix, Providers: agent.Builtin().Providers, Agents: store,
		Services: lookup.NewServices(func(ctx context.Context, tenant string) ([]string, error) {
			return toolkit.ServedSubjects(ctx, nc, prefix, tenant)
		}).Of,
		Key: func(_ context.Context, tenant, name, host string) error {
			_, err := definition.Secrets{Dir: secretsDir, Getenv: os.Getenv}.Key(tenant, name, host)
			return err
		},
		Secret: func(ctx context.Context, tenant, name, host string) error {
			p, err := policies.Of(ctx, tenant)
			if err != nil {
				return nil //nolint:nilerr // nobody knows, so nothing is missing
			}
			_, err = definition.Secrets{Dir: secretsDir, Getenv: os.Getenv}.Find(tenant, name, host, p)
			return err
		},
	}
}

// agentFindings checks the latest versions of the agents of the default tenant and of all stored tenants, for the
// services of tools and hooks, agents and secrets that they refer to; beyond maxAgents agents it checks only the
// services of tools. No finding is fatal: a service may start in a moment.
func agentFindings(ctx context.Context, nc *nats.Conn, cfg deploy.Config, secretsDir string, store Definitions) []state.Finding {
	tenants, err := store.Documents(ctx, state.TenantDocument)
	if err != nil {
		return []state.Finding{{Name: "agents", Detail: err.Error(), Remedy: "check that the store answers and permits this user to read it, and retry"}}
	}
	delete(tenants, state.DefaultTenant)
	finder := Finder(nc, cfg.Prefix, store, secretsDir)
	left, partly := maxAgents, 0
	var findings []state.Finding
	for _, tenant := range append([]string{state.DefaultTenant}, slices.Sorted(maps.Keys(tenants))...) {
		findings = append(findings, toolsOf(ctx, nc, cfg.Prefix, tenant, store)...)
		missing, all := missingOf(ctx, finder, tenant, store, &left)
		findings = append(findings, missing...)
		if !all {
			partly++
		}
	}
	if partly > 0 {
		findings = append(findings, state.Finding{
			Name: "agents", Detail: fmt.Sprintf("doctor checked %d agents, and not those of %d tenants, or not all of them, except for services of tools", maxAgents, partly),
			Remedy: "none if all agents are in use; otherwise remove unused ones with `turnpike agents rm`",
		})
	}
	return findings
}

func of(tenant string) string {
	if tenant == state.DefaultTenant {
		return ""
	}
	return " of tenant " + tenant
}

// missingOf reports the things that the agents of a tenant refer to and that are missing, except
// tools, which toolsOf reports with their versions. It checks at most left agents, and reports whether that were all.
func missingOf(ctx context.Context, finder *lookup.Finder, tenant string, agents state.Agents, left *int) (findings []state.Finding, all bool) {
	places := map[string]int{} // in findings, by name
	err := state.EachAgent(ctx, agents, tenant, func(v state.AgentVersion) error {
		if *left--; *left < 0 {
			return errEnough
		}
		for _, m := range missing(ctx, finder, tenant, v) {
			name := string(m.Kind) + ": " + m.Name + of(tenant)
			i, there := places[name]
			if !there {
				i = len(findings)
				places[name] = i
				findings = append(findings, state.Finding{Name: name, Detail: m.Why, Remedy: remedies[m.Kind]})
			}
			if who := " (" + v.Name + ": " + m.At + ")"; len(findings[i].Detail) < 1000 {
				findings[i].Detail += who
			}
		}
		return nil
	})
	return findings, !errors.Is(err, errEnough) // of another error toolsOf tells
}

var errEnough = errors.New("enough agents")

// missing returns the things that an agent refers to and that are missing, except tools.
func missing(ctx context.Context, finder *lookup.Finder, tenant string, v state.AgentVersion) []lookup.Missing {
	known := agent.Builtin()
	def, err := known.Parse(v.Definition)
	if err != nil {
		return nil // of a newer version of this program, or with kinds of somebody's own
	}
	a, err := known.Compile(def, v.Version)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(finder.Missing(ctx, tenant, a), func(m lookup.Missing) bool { return m.Kind == lookup.Tool })
}

var remedies = map[lookup.Kind]string{
	lookup.Hook:   "start its service, or correct the subject in the agent",
	lookup.Agent:  "save the agent, or correct the name",
	lookup.Secret: "set the secret, or run doctor where the workers run: it looks in the environment and files of this machine",
}

// toolsOf checks that each NATS tool of a tenant's agents has a service.
func toolsOf(ctx context.Context, nc *nats.Conn, prefix, tenant string, agents state.Agents) []state.Finding {
	whose := of(tenant)
	used, err := natsTools(ctx, agents, tenant)
	if err != nil {
		return []state.Finding{{Name: "tools" + whose, Detail: err.Error(), Remedy: "check that the store answers and permits this user to read it, and retry"}}
	}
	if len(used) == 0 {
		return nil
	}
	services, err := natstool.Discover(ctx, nc, prefix, tenant)
	if err != nil {
		asked := toolkit.DiscoverySubject(micro.InfoVerb, prefix, tenant) + " and " + toolkit.DiscoverySubject(micro.StatsVerb, prefix, tenant)
		return []state.Finding{{Name: "tools" + whose, Detail: err.Error(), Remedy: "check that NATS answers, and permit this NATS user to send requests to " + asked}}
	}
	var findings []state.Finding
	for _, name := range slices.Sorted(maps.Keys(used)) {
		f := state.Finding{Name: "tool: " + name + whose}
		i := slices.IndexFunc(services, func(s natstool.Service) bool { return s.Name == name })
		if i < 0 {
			f.Detail = "no instance found; agents with this tool: " + strings.Join(used[name], ", ")
			f.Remedy = "start its service: docs/how-to/nats-tools.md. Ignore this if the service runs without the discovery protocol of NATS micro, which this check needs"
		} else {
			s := services[i]
			f.OK, f.Detail = true, fmt.Sprintf("%d found, of version %s", len(s.Instances), strings.Join(s.Versions(), ", "))
			if err := jsonschema.CheckArguments(s.Schema); len(s.Schema) > 0 && err != nil {
				f.OK, f.Detail = false, f.Detail+"; the schema in its metadata is not usable: "+err.Error()
				f.Remedy = "correct the schema in the service, or give one in the agent's definition"
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// natsTools returns the names of the NATS tools and probes, each with the agents that have it.
func natsTools(ctx context.Context, agents state.Agents, tenant string) (map[string][]string, error) {
	used := map[string][]string{}
	err := state.EachAgent(ctx, agents, tenant, func(a state.AgentVersion) error {
		def, err := agent.Parse(a.Definition)
		if err != nil {
			return nil //nolint:nilerr // of a newer version of this program
		}
		for _, t := range def.Tools {
			if t.Kind == toolspec.NATS {
				used[t.Name] = append(used[t.Name], a.Name)
			}
			if t.Probe != nil && t.Probe.Kind == toolspec.NATS {
				name := t.Probe.Definition(t.Name).Name
				used[name] = append(used[name], a.Name)
			}
		}
		return nil
	})
	return used, err
}
