// Package natsstore keeps runs in a JetStream stream, so that one NATS server is
// all that a small deployment or `turnpike dev` needs.
//
// Every run has a subject, and every change of a run is one message on it: the
// run's record as it then stands, and what the change adds to the log. A change
// is published on the condition that the subject's last message is the one it was
// made from. So one publish is one atomic, durable step; the last message is the
// run's record, and all of them together are its log.
//
// An index of all records is kept in memory for lists and for the sweeper, so this
// store suits up to 20,000 runs, not millions: it warns of more. Lists cost by what they
// return. Its clock is the server's.
package natsstore
