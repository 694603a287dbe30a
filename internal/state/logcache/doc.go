// Package logcache keeps the logs of the runs that a store has lately read. Logs
// only grow, so a store need fetch no more than what came since (I12). With a log that
// a commit has written it keeps the header, which whoever goes on with the run need
// neither fetch nor decode.
package logcache
