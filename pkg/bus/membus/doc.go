// Package membus is a bus in memory, for tests and simulation. It keeps its messages until it is
// closed.
package membus
