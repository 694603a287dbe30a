// Package explore drives production code, internal/worker with internal/engine and internal/gateway, through
// every order of steps and faults within a bound.
//
// A deployment of a gateway, two workers and a person lives in a bubble of testing/synctest. Every call of a
// process to the store, the bus, a model, a tool or a hook waits at a gate until all goroutines wait. The
// explorer then lets one of these calls continue and chooses its outcome: done, refused, done but without an
// answer, with the death of the process before or after, with the process asleep beyond its lease. So every
// execution is a list of choices. An execution follows a given list and then the default, without any fault, to
// its end; the alternatives on the way are the next lists. The result of a prefix must be the same each time;
// the explorer checks that.
//
// The explorer abandons a list at a state that it has already visited with as many faults left. Two states are
// equal if the store, the bus, the clock, the outside world and all answers to each process are equal: the
// memory of a process is a function of those.
package explore
