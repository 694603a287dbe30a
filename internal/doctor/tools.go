package doctor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"golang.org/x/sync/errgroup"

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

// atOnce is the number of tenants, and of runs, that doctor reads concurrently.
const atOnce = 16

// agentFindings checks whether what the latest versions of agents refer to exists, such as services, agents and
// secrets. It looks at the agents of the default tenant and of all stored tenants. Of agents that this program cannot
// compile, and of those beyond maxAgents, it checks at most the services of NATS tools. No finding is fatal: a service
// may start in a moment.
func agentFindings(ctx context.Context, nc *nats.Conn, cfg deploy.Config, secretsDir string, store Definitions) []state.Finding {
	stored, err := store.DocumentNames(ctx, state.TenantDocument)
	if err != nil {
		return []state.Finding{{Name: "agents", Detail: err.Error(), Remedy: "check that the store answers and permits this user to read it, and retry"}}
	}
	tenants := []string{state.DefaultTenant}
	for _, tenant := range stored {
		if tenant != state.DefaultTenant {
			tenants = append(tenants, tenant)
		}
	}
	shares, partly := sharesOf(ctx, tenants, store)
	finder := Finder(nc, cfg.Prefix, store, secretsDir)
	found := make([][]state.Finding, len(tenants))
	each(tenants, func(i int, tenant string) {
		found[i] = tenantFindings(ctx, nc, cfg.Prefix, finder, tenant, store, shares[i])
	})
	findings := slices.Concat(found...)
	if partly > 0 {
		findings = append(findings, state.Finding{
			Name: "agents", Detail: fmt.Sprintf("doctor checked %d agents, and not those of %d tenants, or not all of them, except for services of tools", maxAgents, partly),
			Remedy: "none if all agents are in use; otherwise remove unused ones with `turnpike agents rm`",
		})
	}
	return findings
}

// each calls fn for each item, for several at once.
func each[T any](items []T, fn func(i int, item T)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, item := range items {
		group.Go(func() error {
			fn(i, item)
			return nil
		})
	}
	_ = group.Wait() // fn returns no errors
}

// sharesOf returns how many agents of each tenant to check, at most maxAgents in total, and the number of tenants of
// which not all agents are checked. Earlier tenants take precedence. A tenant whose agents cannot be listed gets 0.
func sharesOf(ctx context.Context, tenants []string, agents state.Agents) (shares []int, partly int) {
	shares = make([]int, len(tenants))
	each(tenants, func(i int, tenant string) {
		names, _ := agents.AgentNames(ctx, tenant) // tenantFindings reports an error
		shares[i] = len(names)
	})
	left := maxAgents
	for i, n := range shares {
		if n > left {
			shares[i] = left
			partly++
		}
		left -= shares[i]
	}
	return shares, partly
}

// tenantFindings checks the agents of a tenant: the services of the tools of all of them, and the other things that
// the first share of them refer to.
func tenantFindings(ctx context.Context, nc *nats.Conn, prefix string, finder *lookup.Finder, tenant string, agents state.Agents, share int) []state.Finding {
	used, missing := map[string][]string{}, missingOf{finder: finder, tenant: tenant, places: map[string]int{}}
	err := state.EachAgent(ctx, agents, tenant, func(v state.AgentVersion) error {
		addNATSTools(used, v)
		if share--; share >= 0 {
			missing.add(ctx, v)
		}
		return nil
	})
	if err != nil {
		return append(missing.findings, state.Finding{Name: "tools" + of(tenant), Detail: err.Error(), Remedy: "check that the store answers and permits this user to read it, and retry"})
	}
	return append(toolsOf(ctx, nc, prefix, tenant, used), missing.findings...)
}

func of(tenant string) string {
	if tenant == state.DefaultTenant {
		return ""
	}
	return " of tenant " + tenant
}

// missingOf collects the things that agents of a tenant refer to and that are missing, except tools, which toolsOf
// reports with their versions.
type missingOf struct {
	finder   *lookup.Finder
	tenant   string
	places   map[string]int // in findings, by name
	findings []state.Finding
}

// add adds the things that an agent lacks.
func (l *missingOf) add(ctx context.Context, v state.AgentVersion) {
	for _, m := range missing(ctx, l.finder, l.tenant, v) {
		name := string(m.Kind) + ": " + m.Name + of(l.tenant)
		i, there := l.places[name]
		if !there {
			i = len(l.findings)
			l.places[name] = i
			l.findings = append(l.findings, state.Finding{Name: name, Detail: m.Why, Remedy: remedies[m.Kind]})
		}
		if who := " (" + v.Name + ": " + m.At + ")"; len(l.findings[i].Detail) < 1000 {
			l.findings[i].Detail += who
		}
	}
}

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
	lookup.Hook:     "start its service, or correct the subject in the agent",
	lookup.Agent:    "save the agent, or correct the name",
	lookup.Variable: "declare the variable, or correct its name in the instructions",
	lookup.Argument: "declare the argument, or correct its name in the request",
	lookup.Secret:   "set the secret, or run doctor where the workers run: it looks in the environment and files of this machine",
}

// toolsOf checks that each NATS tool of a tenant has a service. used has the agents with a tool, by its name.
func toolsOf(ctx context.Context, nc *nats.Conn, prefix, tenant string, used map[string][]string) []state.Finding {
	if len(used) == 0 {
		return nil
	}
	whose := of(tenant)
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

// addNATSTools adds an agent to used, by the names of its NATS tools and probes.
func addNATSTools(used map[string][]string, a state.AgentVersion) {
	def, err := agent.Parse(a.Definition)
	if err != nil {
		return // of a newer version of this program
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
}
