//go:build race

package protocol_test

// underRace says that the race detector watches, under which an exploration takes ten
// times as long and has no second goroutine to show it: `make protocol` does without.
const underRace = true
