// Package chaos runs a whole deployment as processes, breaks it for a while, and
// checks from outside that nothing was lost and nothing done twice.
//
// A campaign is a few phases, each with a deployment of its own: NATS alone or as
// a cluster of three, Redis alone or with a replica that takes over; or one of Redis'
// relatives: a cluster, Sentinels, Valkey. Users submit
// runs of every kind, follow them, answer what they wait for and abort some, while
// faults drawn from a seed kill, pause, cut, delay and fill up what there is. Tools
// write each effect to a ledger that no fault touches, and the model server notes
// each answer that it gave. When the faults have ended, Check compares what the
// store says, what the readers of event streams saw, the ledger and the answers
// with docs/reference/invariants.md.
package chaos
