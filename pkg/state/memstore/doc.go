// Package memstore is a state.Store in memory, for tests and simulation. It encodes and decodes
// runs and their logs, so that shared memory cannot hide a bug.
package memstore
