// Package load puts deployments of real processes under strain and looks at them from
// outside: many runs at once, long runs, slow readers, and dependencies that are away,
// full or slow. Its tests take seconds; the command measure below it takes minutes and
// prints the figures that docs/concepts/proofs.md has.
package load
