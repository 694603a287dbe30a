// Package state defines one run as a value: its header ([State]), its append-only log ([Entry]),
// the model's view of that log ([View]), the typed reasons for a run's transitions ([Reason]), and
// the contract for storing them ([Store]), whose four parts are runs and turns ([RunStore]),
// administration ([AdminStore]), rate limits ([Quotas]) and timers ([Timers]). It imports only
// internal/state/wire from this module.
//
// A run's log is the single record of its history. The transcript, the audit trail and the event
// stream are derived from it; nothing is stored twice. The header repeats what a scheduler needs
// without reading the log.
//
// A worker claims a lease from a store, and ends the turn with a commit:
//
//	claim, err := store.Claim(ctx, state.ClaimRequest{Run: id, Version: 1, Token: token, Worker: "w1", Lease: 25 * time.Second})
//	if err != nil || claim.Outcome != state.Claimed {
//		return err
//	}
//	done, err := store.Commit(ctx, claim.Lease, state.Commit{ID: token, State: &next, From: claim.State.LogLen()})
//
// Packages redisstore, natsstore and memstore implement [Store]; examples/sqlitestore implements
// [RunStore] and imports nothing internal.
//
// # Guarantees
//
//   - Every method that changes a run is one atomic step. When it returns nil, the change is
//     durable as far as the server syncs it. After a timeout the caller may repeat the call, and it
//     applies once, except where [Store] or the method says otherwise.
//   - One worker holds the lease of a turn. A worker that has lost it cannot change the run (I8).
//   - Committed entries are numbered 1 to n, without gaps or duplicates (I9).
//   - Implementations pass turnpiketest.Store, or the suites of the parts that they have.
package state
