// Package bustest is the conformance suite of bus.Bus.
package bustest
