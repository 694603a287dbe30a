// Package state defines one run as a value: its header ([State]), its
// append-only log ([Entry]), what the model sees of that log ([View]), the
// typed reasons for which a run moves ([Reason]), and the contract for keeping
// runs ([Store]). It imports nothing from the rest of the module.
//
// A run's log is the single record of what happened. The transcript, the audit
// trail and the event stream are three readings of it; nothing is stored twice.
// The header repeats what a scheduler must know without reading the log.
//
// A store is asked for a lease, and the turn ends with a commit:
//
//	claim, err := store.Claim(ctx, state.ClaimRequest{Run: id, Version: 1, Token: token, Worker: "w1", Lease: 25 * time.Second})
//	if err != nil || claim.Outcome != state.Claimed {
//		return err
//	}
//	done, err := store.Commit(ctx, claim.Lease, state.Commit{ID: token, State: next, From: claim.State.LogLen()})
//
// Packages redisstore, natsstore and memstore keep runs; record has the rules that all of them enforce.
//
// # Guarantees
//
//   - Every method that changes a run is one atomic step, durable when it returns nil as far as the server
//     syncs what it acknowledges. After a time-out it may be repeated: it applies once.
//   - One worker holds the lease of a turn. Who has lost it changes nothing any more (I8).
//   - Committed entries are numbered 1 to n, without gap or double (I9).
//   - Implementations pass statetest.Exercise.
package state
