// Package a2atool makes tools of remote agents that speak A2A (K7): a call is a
// message to the agent, its answer is the result.
//
// The task is cancelled when the call ends early. A call that is repeated after a
// crash has the same message id, so an agent that recognizes the id can detect the
// repetition.
package a2atool
