// Package executor runs steps of turns that need a deep stack on a few goroutines that keep
// their stacks.
//
// The goroutine of a turn mostly waits, and there may be thousands of them. A stack that has
// grown stays until a garbage collection finds it mostly empty, and its 32 KiB exceed all other
// memory of a turn. The outcome of a step does not depend on its goroutine: Inline does the same
// without saving memory. ADR 20 has the figures.
package executor
