// Package natsstore keeps runs in a JetStream stream, so that a small deployment or `turnpike dev`
// needs only one NATS server.
//
// Every run has a subject, and every change of a run is one message on it: the new record of the
// run, and the entries that the change adds to the log. A change is published on the condition that
// the subject's last message is the one that it was based on. So one publish is one atomic, durable
// step; the last message is the run's record, and all of them together are its log. The stream
// TURNPIKE_STATE, for the prefix turnpike, also has agents, documents, timers and figures. Rate limits
// are in TURNPIKE_QUOTA, audits in TURNPIKE_AUDIT.
//
// Every process keeps an index of all records in memory for lists and for the sweeper, so this
// store suits up to 20,000 runs, not millions; above that it logs a warning. The cost of a list
// depends on the runs that it returns. The store's clock is the server's.
package natsstore
