// Package state defines one run as a value: its header ([State]), its
// append-only log ([Entry]), what the model sees of that log ([View]), the
// typed reasons for which a run moves ([Reason]), and the contract for keeping
// runs ([Store]). It imports nothing from the rest of the module.
//
// A run's log is the single record of what happened. The transcript, the audit
// trail and the event stream are three readings of it; nothing is stored twice.
// The header repeats what a scheduler must know without reading the log.
package state
