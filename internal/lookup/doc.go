// Package lookup finds the things that a definition refers to and that the deployment lacks: tools
// and hooks over NATS without a service, agents that are not saved, secrets that are not declared.
// It also finds variables and arguments of HTTP tools that the definition uses without declaring them.
// None of it makes a definition wrong, since a service may be started later; so it warns.
//
// A [Finder] gets access to agents and services. [Services] caches the subjects with a service.
//
//	finder := &lookup.Finder{Prefix: "turnpike", Agents: store, Services: lookup.NewServices(ask).Of}
//	for _, m := range finder.Missing(ctx, "default", compiled) {
//		fmt.Println(m.At, m.Why)
//	}
//
// # Guarantees
//
//   - A warning reveals only the tenant's own agents, and services below its own root.
//   - A lookup that fails causes no warning.
//   - A definition costs one lookup of services, at most a hundred of agents and secrets, and fifty warnings.
package lookup
