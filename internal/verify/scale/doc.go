// Package scale holds deployments of real processes to what many runs at once must not
// break: the death and the sleep of a worker among thousands of runs in flight, a backlog
// that outlasts every redelivery, lists of very many runs, a tree that grows as fast as it
// can, trees of one tenant beside runs of another, and an attack on memory. What must never
// be is a failure; what takes time is measured and printed. The test is a short form; the
// command measure below it has the sizes as flags.
package scale
