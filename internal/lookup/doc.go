// Package lookup finds what a definition refers to and nobody has: tools and hooks over NATS
// without a service, agents that are not saved, secrets that are not declared. None of it makes
// a definition wrong, since a service may be started later; so it warns.
//
// A [Finder] is told where agents and services are. [Services] remembers who answers.
//
//	finder := &lookup.Finder{Prefix: "turnpike", Agents: store, Services: lookup.NewServices(ask).Of}
//	for _, m := range finder.Missing(ctx, "default", compiled) {
//		fmt.Println(m.At, m.Why)
//	}
//
// # Guarantees
//
//   - A tenant is told of its own agents, and of services below its own root, and of no others.
//   - What cannot be found out is not said to be missing.
//   - A definition costs one question about services, at most a hundred about agents and secrets, and fifty warnings.
package lookup
