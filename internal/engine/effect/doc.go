// Package effect carries out the effects that a loop requests: calls of models, tools, hooks and
// probes.
//
// A [Performer] serves all turns of a worker; [Performer.Do] carries out one effect of one [Turn]
// and returns the event that continues the loop. It decides nothing about the run and does not
// commit: the code that took the turn does.
//
// An effect writes to its run only through the [Journal] of the turn. It also reads agents and
// earlier entries of the log, keeps files, and uses rate limits ([state.Quotas]).
//
// The order of writes and effects is fixed here: the journal has a response before a hook or a tool
// receives it, it has the start marks of calls that may start only once before they start, and nothing starts after a
// write has reported an abort or an interrupt.
package effect
