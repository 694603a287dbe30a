// Package worker takes runs through their turns. It is the only place where
// loop, store, bus, models and tools meet.
//
// One turn is one function that reads downwards in the order of durability:
//
//	claim ─► decide ─► act ─► commit ─► publish next ─► ack
//
// The store holds the truth; a message only says where to look. What a crash
// between two of these steps leaves behind:
//
//	claim … commit      the lease runs out, or the others notice that the worker is
//	                    gone; the next claim finds the journal and runs the rest
//	commit … publish    the message is delivered again, is stale, and the claim says
//	                    what to publish; or the sweeper finds the run due
//	publish … ack       the message is delivered again, and is stale
//
// A worker that lost its lease touches nothing any more: no ack, no nak, no
// event (I8).
package worker
