// Package memstore keeps runs in memory, for tests and simulation. It encodes and decodes
// everything, so that shared memory cannot hide a bug.
package memstore
