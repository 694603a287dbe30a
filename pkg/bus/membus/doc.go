// Package membus is a bus in memory, for tests and simulation. Unlike natsbus it calls the functions of
// watchers in the goroutine of the publisher, loses no notice, never forgets the id of a turn, and has all
// tenants open.
package membus
