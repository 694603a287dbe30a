// Package membus is a bus in memory, for tests and simulation. Unlike natsbus it calls the functions of watchers in the
// goroutine of the publisher, also after Close until their stop, loses no notice, never forgets the id of a turn, has
// all tenants open and always a feed, and reports nothing as unpulled.
package membus
