// Package access authenticates callers and decides what they may do.
//
// A gateway authenticates a bearer token, and determines what its owner may do in the tenant of
// the request:
//
//	who, err := access.NewKeys(store).Authenticate(ctx, token)
//	if err != nil {
//		return err
//	}
//	caller, err := who.In("acme", state.DefaultTenant)
//	if err != nil {
//		return err
//	}
//	if !caller.May(access.Submitter) {
//		return errors.New("may not submit")
//	}
//
// # Guarantees
//
//   - The secret of a key is in the answer of [Keys.Create] only. The store keeps its hash, and
//     secrets are compared in constant time.
//   - Every process refuses a revoked key within two seconds, and ends its open streams within five
//     ([Keys.Revoke]).
//   - A session is stored by the hash of its id, ends with its key, and has an id that is new at
//     each login ([Login]).
//   - A token of an OpenID provider counts only with a signature by one of its keys, for the
//     audience, and until 30 s after it has expired ([OIDC]).
//   - [Principal.In] gives roles in the tenant that is named, or a *TenantError: no role of one
//     tenant counts in another.
package access
