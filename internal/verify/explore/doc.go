// Package explore drives production code, internal/worker with internal/engine and internal/gateway,
// through every order of steps and faults within a bound.
//
// A deployment of a gateway, two workers and a person lives in a bubble of testing/synctest. Every
// call of a process to the store, the bus, a model, a tool or a hook waits at a gate until all
// goroutines wait. The explorer then lets one of these calls continue and chooses its outcome:
// done, refused, done but without an answer, with the death of the process before or after, with
// the process asleep beyond its lease. So every execution is a list of choices. An execution
// follows a given list and then the default, without any fault, to its end; the alternatives on the
// way are the next lists. The result of a prefix must be the same each time; the explorer checks
// that.
//
// A list is not followed further where another has been with as many faults left: store,
// bus, clock, outside world and everything that each process has ever been told are the
// same there, and the memory of a process is a function of that.
package explore
