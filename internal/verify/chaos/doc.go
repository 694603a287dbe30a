// Package chaos runs a whole deployment as processes, injects faults for a while, and checks from outside that
// nothing was lost or done twice.
//
// A campaign has a few phases, each with its own deployment: NATS alone or as a cluster of three, Redis alone
// or with a replica that takes over; or one of Redis' relatives: a cluster, Sentinels, Valkey. Users submit
// runs of every kind, follow them, answer their waits and abort some, while faults drawn from a seed kill,
// pause, cut off, delay and fill up the parts. Tools write each effect to a ledger that no fault touches, and
// the model server records each answer that it gave. When the faults have ended, Check compares the store's
// content, the events that readers received, the ledger and the answers with docs/reference/invariants.md.
package chaos
