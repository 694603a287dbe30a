// Package modeltest is the conformance suite of every provider, whatever its API.
package modeltest
