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
// event (I8). It hands in what its calls came to, and the store keeps what
// nobody has yet.
//
// A [Worker] is made of a store and a bus, and configured by [Config], which names models, tools, hooks and
// loops. Whoever wants it with the connections to both uses package turnpike instead.
//
//	w, err := worker.New(store, b, worker.Config{ID: "w1", Providers: map[string]model.Provider{"scripted": scripted.New()}})
//	if err != nil {
//		return err
//	}
//	err = w.Run(ctx)
//
// # Guarantees
//
//   - A turn is committed once. If a worker dies before the commit, another one goes on from the journal.
//   - [Worker.Run] returns when its context has ended and the turns in flight are committed or released, within
//     [Config.ShutdownGrace]. A released turn counts no attempt.
//   - A turn that kills its workers ends poisoned, after Config.MaxAttempts claims, as a dead letter.
package worker
