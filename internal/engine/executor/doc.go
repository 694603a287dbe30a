// Package executor runs the steps of turns that need a deep stack on goroutines which
// keep theirs.
//
// The goroutine of a turn only waits, for the most part, and there may be thousands of
// them. A stack that has grown once stays until the garbage collector finds it mostly
// empty, and 32 KiB each is more than all else that a turn holds. Nothing that a turn does
// depends on where its steps are run: Inline is the same without the saving.
package executor
