// Package worker assembles a worker and pulls turns for it from the bus.
//
// The parts of a worker are in other packages: internal/engine/turn takes a run through one turn,
// internal/engine/effect calls models, tools, hooks and probes, and internal/engine/upkeep maintains the
// deployment outside its turns. This package has their configuration and their metrics in one place,
// the slots that bound the turns in flight, and the queues.
//
// New makes a [Worker] from a store and a bus. [Config] names its models, tools, hooks and loops. The
// package turnpike makes one together with the connections to both.
//
//	w, err := worker.New(store, b, worker.Config{ID: "w1", Providers: map[string]model.Provider{"scripted": scripted.New()}})
//	if err != nil {
//		return err
//	}
//	err = w.Run(ctx)
//
// # Guarantees
//
//   - A turn is committed once. If a worker dies or stops before the commit, another one continues from the journal.
//   - [Worker.Run] returns when its context has ended and the turns in flight are committed or released, soon after
//     [Config.ShutdownGrace]. A release does not count as an attempt. If the store does not answer within 5 s after
//     that, Run returns all the same, and the leases expire.
//   - A run whose turn kills its workers ends poisoned, after Config.MaxAttempts claims, with a dead letter.
package worker
