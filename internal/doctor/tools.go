package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/check"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool/natstool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
)

// toolFindings looks whether somebody serves each NATS tool of the agents, in their
// latest versions. None is fatal: a call waits for a moment, and then tells the
// model.
func toolFindings(ctx context.Context, nc *nats.Conn, prefix string, agents state.Agents) []check.Finding {
	used, err := natsTools(ctx, agents, state.DefaultTenant)
	if err != nil {
		return []check.Finding{{Name: "tools", Detail: err.Error(), Remedy: "mend the store"}}
	}
	if len(used) == 0 {
		return nil
	}
	services, err := natstool.Discover(ctx, nc, prefix)
	if err != nil {
		return []check.Finding{{Name: "tools", Detail: err.Error(), Remedy: "allow requests to $SRV.INFO and $SRV.STATS"}}
	}
	var findings []check.Finding
	for _, name := range slices.Sorted(maps.Keys(used)) {
		f := check.Finding{Name: "tool: " + name}
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
