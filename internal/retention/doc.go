// Package retention deletes runs that have ended: one when it is asked to, and those that
// are older than their agent or the deployment keeps them.
//
// A [Cleaner] needs a store and a bus. Each gateway runs one; gateways need not agree which of
// them deletes which runs.
//
//	cleaner := retention.New(store, b, retention.Config{Keep: agent.Retention{Completed: agent.Period(30 * 24 * time.Hour)}})
//	go cleaner.Run(ctx)
//	n, err := cleaner.Delete(ctx, run.ID)
//
// # Guarantees
//
//   - Only what has ended is deleted, with all runs below it, and nothing if one of those has not ended.
//   - The runs below a run go before it, so a run that is there is never named by nobody, and what names a run that is
//     gone goes soon.
//   - A deletion that was interrupted goes on with the next.
//   - What cannot be deleted keeps nothing else: each failure is logged with its run and tenant, ten of them a pass and
//     rule, and tried again with the next pass. Runs of a newer build, and what is below them, are left to that.
//   - A page of runs in memory has some 8 MiB.
package retention
