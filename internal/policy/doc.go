// Package policy defines what the agents of a tenant may use: hosts, models, programs and secrets.
// An admin of the deployment sets it (api.TenantSettings).
//
// A [Policy] is checked twice: by gateways when a definition is saved, and by workers when a
// call is made, because the tenant's policy may have changed:
//
//	p := policy.Of("acme", settings)
//	err := p.Check(compiled)             // a definition, each mistake with its place
//	err = p.Host("api.example.com:443")  // one call
//
// # Guarantees
//
//   - The zero Policy allows everything.
//   - A refusal names the field of the tenant's settings that causes it.
//   - A [Reader] sees a change within three seconds, or within thirty while the store does not answer, and reads the
//     settings of a tenant at most once in two seconds.
package policy
