// Package quota is the rate limit that workers share, as a pure function of one
// bucket: the rules that every store enforces, without any storage. A store that
// can swap a bucket atomically needs nothing else; the Redis script reimplements
// the rules, and passes the same suite.
//
// All times are microseconds, and all arithmetic is in integers, so that both
// implementations compute the same numbers.
package quota
