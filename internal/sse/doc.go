// Package sse writes and reads event streams (text/event-stream): what the gateway
// sends and the client follows. It knows frames, not what is in them.
package sse
