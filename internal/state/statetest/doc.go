// Package statetest is the conformance suite of state.Store and of each of its parts. It tests the
// guarantees of the contract, races above all, on the server that the implementation uses.
package statetest
