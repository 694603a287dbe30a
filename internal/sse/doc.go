// Package sse writes and reads event streams (text/event-stream): the gateway
// sends them and the client follows them. It handles frames, not their content.
package sse
