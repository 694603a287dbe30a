package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/check"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool/natstool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// definitions is where agents and tenants are.
type definitions interface {
	state.Agents
	state.Documents
}

// toolFindings looks whether somebody serves each NATS tool of the agents of all tenants that
// have settings, in their latest versions. None is fatal: a call waits for a moment, and then
// tells the model.
func toolFindings(ctx context.Context, nc *nats.Conn, prefix string, store definitions) []check.Finding {
	tenants, err := store.Documents(ctx, state.TenantDocument)
	if err != nil {
		return []check.Finding{{Name: "tools", Detail: err.Error(), Remedy: "mend the store"}}
	}
	delete(tenants, state.DefaultTenant)
	findings := toolsOf(ctx, nc, prefix, state.DefaultTenant, store)
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		findings = append(findings, toolsOf(ctx, nc, prefix, tenant, store)...)
	}
	return findings
}

// toolsOf is toolFindings of one tenant.
func toolsOf(ctx context.Context, nc *nats.Conn, prefix, tenant string, agents state.Agents) []check.Finding {
	whose := ""
	if tenant != state.DefaultTenant {
		whose = " of tenant " + tenant
	}
	used, err := natsTools(ctx, agents, tenant)
	if err != nil {
		return []check.Finding{{Name: "tools" + whose, Detail: err.Error(), Remedy: "mend the store"}}
	}
	if len(used) == 0 {
		return nil
	}
	services, err := natstool.Discover(ctx, nc, prefix, tenant)
	if err != nil {
		asked := toolkit.DiscoverySubject(micro.InfoVerb, prefix, tenant) + " and " + toolkit.DiscoverySubject(micro.StatsVerb, prefix, tenant)
		return []check.Finding{{Name: "tools" + whose, Detail: err.Error(), Remedy: "allow requests to " + asked}}
	}
	var findings []check.Finding
	for _, name := range slices.Sorted(maps.Keys(used)) {
		f := check.Finding{Name: "tool: " + name + whose}
		i := slices.IndexFunc(services, func(s natstool.Service) bool { return s.Name == name })
		if i < 0 {
			f.Detail = "no instance is found; agents with it: " + strings.Join(used[name], ", ")
			f.Remedy = "start its service: docs/how-to/nats-tools.md. One without the discovery protocol of NATS micro works, but is not found"
		} else {
			s := services[i]
			f.OK, f.Detail = true, fmt.Sprintf("%d found, of version %s", len(s.Instances), strings.Join(s.Versions(), ", "))
			if err := agent.CheckArguments(s.Schema); len(s.Schema) > 0 && err != nil {
				f.OK, f.Detail = false, f.Detail+"; the schema in its metadata is of no use: "+err.Error()
				f.Remedy = "mend the schema in the service, or give one in the definition of the agent"
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// natsTools returns the names of the NATS tools and probes, each with the agents that have it.
func natsTools(ctx context.Context, agents state.Agents, tenant string) (map[string][]string, error) {
	list, err := agents.ListAgents(ctx, tenant)
	if err != nil {
		return nil, err
	}
	used := map[string][]string{}
	for _, a := range list {
		def, err := agent.Parse(a.Definition)
		if err != nil {
			continue // of a newer version of this program
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
	return used, nil
}
