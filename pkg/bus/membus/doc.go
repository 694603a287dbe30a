// Package membus is a bus in memory, for tests and simulation. It loses what it
// holds when it is closed, and nothing before.
package membus
