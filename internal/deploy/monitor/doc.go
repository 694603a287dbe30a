// Package monitor measures a deployment's store and reports the connections of a process to the
// store and to NATS.
package monitor
