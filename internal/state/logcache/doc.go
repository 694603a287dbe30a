// Package logcache caches the logs of the runs that a store has recently read. Logs only grow, so a
// store fetches only the new entries (I12). With a log that a commit has written it keeps the
// header, so that the next turn of the run need not fetch and decode it.
package logcache
