// Package record is the turn protocol as a pure function of one run's record: the
// rules that every store enforces, without any storage. A store that can swap a
// record atomically needs nothing else; the Redis scripts reimplement the rules,
// and pass the same suite.
package record
