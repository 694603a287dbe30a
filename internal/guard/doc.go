// Package guard keeps HTTP requests that definitions and submissions name from addresses that only this
// process can reach.
package guard
