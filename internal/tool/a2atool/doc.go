// Package a2atool makes tools of remote agents that speak A2A (K7): a call is a message to the agent, and the agent's
// answer is the result.
//
// If the call is cancelled or reaches its time limit while the agent works on a task that it has named, or if the task
// needs more input, the package asks the agent to cancel the task. A call that is repeated after a crash has the same
// message id, so an agent that recognizes the id can detect the repetition.
package a2atool
