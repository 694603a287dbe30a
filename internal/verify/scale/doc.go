// Package scale checks deployments of real processes under many concurrent runs: the death and the
// sleep of a worker among thousands of runs in flight, a backlog that outlasts every redelivery,
// lists of very many runs, a tree that grows as fast as it can, trees of one tenant next to runs of
// another, and an attack on memory. Violations are failures; durations are measured and printed.
// The test is a short form; the command measure below it has the sizes as flags.
package scale
