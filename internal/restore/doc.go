// Package restore detects that the store of a deployment is an older copy of itself, and stops the
// deployment until an operator decides.
//
// A [Mark] is a counter that the processes of a deployment advance together, at most once in an
// [Interval]. It is kept in the store and on the bus. A restored copy of the store has an older
// mark than the bus.
//
//	watch := restore.NewWatch(redis, natsbus, log)
//	go watch.Run(ctx)
//	store, bus := watch.Store(redis), watch.Bus(natsbus)
//
// # Guarantees
//
//   - The mark in the store is raised before that on the bus, and by one. So a store that was not
//     restored is never behind, whatever processes crash, pause, or lose one of the two.
//   - A store that lacks more than [Tolerance] marks stays behind until [Watch.Accept]: no process
//     raises a mark that is behind, not even one that read the bus long ago.
//   - Once a process has noticed that the store is behind, its wrappers claim, sweep, evict and commit
//     nothing, publish no turn, begin no deletion, and record no run as lost. Before that, the store
//     itself refuses claims, sweeps and evictions below the floor that the process has set.
//   - A store or a bus that does not answer changes nothing. The same holds for a
//     deployment that was stopped, because no clock plays a part, and for a bus without its mark.
package restore
