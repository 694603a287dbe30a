// Package a2atool makes tools of remote agents that speak A2A (K7): a call is a
// message to the agent, its answer is the result.
//
// The task is cancelled when the call is given up. A call that is made again after
// a crash has the same message id, so an agent that knows the id can tell.
package a2atool
