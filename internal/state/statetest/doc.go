// Package statetest is the conformance suite of state.Store. It tests the
// guarantees of the contract, the races above all, on whatever server the
// implementation uses.
package statetest
