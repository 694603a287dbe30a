// Package webhook delivers the events of runs to the addresses that their submitters have named.
//
// The finalizer of a run puts a timer into the store for each event, before it notes that the run is
// finalized, so no crash loses one. A [Sender] claims the timers that are due, builds the event from the
// run's log, and sends it as Standard Webhooks and CloudEvents (binary mode) describe. An event is delivered
// at least once, always with the same id and the same body. If that fails for three days, or for good, it becomes
// a dead letter. An event is sent after the earlier events of its run are delivered, or are dead letters.
package webhook
