// Package turn takes runs through their turns.
//
// One turn is one function, takeTurn, that reads downwards in the order of durability:
//
//	claim ─► decide ─► act ─► commit ─► publish next ─► ack
//
// The store is authoritative; a message only names a run and a version. A crash between two steps
// leaves this state:
//
//	claim … commit      the lease expires, or another worker notices that this one is dead; the
//	                    next claim finds the journal and does the rest
//	commit … publish    the message is delivered again and is stale, and the claim returns what to
//	                    publish; or the sweeper finds the run due
//	publish … ack       the message is delivered again, and is stale
//	commit … finalize   the run waits or has ended, and is due: the stale message or the sweeper
//	                    finalizes it
//
// A worker that lost its lease changes nothing any more: it sends no ack, no nak and no event (I8).
// It hands in the results of its calls, and the store keeps those that it does not have yet.
//
// Between claim and commit only [Journal] records what the turn has done; leases, children, quotas
// and files have writers of their own. Package effect makes the calls of models and tools; package
// loop decides what follows from them.
package turn
