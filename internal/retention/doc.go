// Package retention deletes runs that have ended: one on request, and those older
// than the retention period of their agent or of the deployment.
//
// A [Cleaner] needs a store and a bus. Each gateway runs one; gateways need not agree which of
// them deletes which runs.
//
//	cleaner := retention.New(store, b, retention.Config{Keep: agent.Retention{Completed: agent.Period(30 * 24 * time.Hour)}})
//	go cleaner.Run(ctx)
//	n, err := cleaner.Delete(ctx, run.Tenant, run.ID)
//
// # Guarantees
//
//   - Only runs that have ended are deleted, with all runs below them, and none if one of those has not ended.
//   - The runs below a run go before it, so every remaining run stays reachable from its root, and references to a
//     deleted run disappear soon.
//   - After a minute, a [Cleaner.Run] of any gateway completes an interrupted deletion, or cancels it.
//   - A failure does not stop other deletions: each is logged with its run and tenant, up to ten per pass and
//     rule, and retried in the next pass. Runs of a newer build, and those below them, are left to that build.
//   - A page of runs takes about 8 MiB of memory.
package retention
