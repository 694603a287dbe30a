// Package memstore keeps runs in memory, for tests and simulation. It passes
// everything through the codec, so that sharing memory cannot hide a bug.
package memstore
