// Package quota is the rate limit that workers share, as a pure function of one
// bucket: the rules that every store enforces, without any storage. A store that
// can swap a bucket atomically needs nothing else; the Redis script is their second
// writing, held to the same suite.
//
// All times are microseconds, and everything is done in integers, so that both
// writings come to the same numbers.
package quota
