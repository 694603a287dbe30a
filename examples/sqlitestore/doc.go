// Package sqlitestore keeps runs and turns in SQLite: an example of a third store. It implements
// [state.RunStore], the first part of the store port, as the comments of package state describe it, and
// passes turnpiketest.RunStore. It imports only public packages of Turnpike.
//
// One file holds a deployment whose processes share a disk. Open as many stores on it as there are
// processes. Each method is one transaction, and SQLite runs the transactions that write one after
// another, so no method needs a rule of its own for concurrent calls. A whole store embeds one of
// these, a state.AdminStore, a state.Quotas and a state.Timers:
//
//	type store struct {
//		*sqlitestore.Store
//		state.AdminStore
//		state.Quotas
//		state.Timers
//	}
package sqlitestore
