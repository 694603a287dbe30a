// Package upkeep keeps the promises of a deployment that no single turn keeps.
//
//   - [Leases] renews the leases of a worker's turns, ends turns that are aborted or fenced, and
//     remembers the turns that the worker has claimed with the commit before.
//   - [Members] notices dead workers by their heartbeats and evicts them.
//   - [Sweeper] publishes turns whose message was lost, and wakes runs at their time.
//   - [Finalizer] does the work that follows when a run waits or ends: child runs, answers to parents, replies,
//     webhook events, dead letters and the next run of a batch.
//   - [Feed] publishes logs as events.
//
// Every step may be repeated, by any worker: after a crash another worker does the rest.
package upkeep
