// Package service makes every check and every change that a caller can request, whichever way the
// request came: over HTTP, over the bus, or from a program of the same process. It knows neither HTTP
// nor the clients of NATS.
//
// A method takes the caller and a typed request, and returns a typed value or an error, of which
// [ProblemOf] returns what the caller sees. It checks the caller's roles, whether the tenant is
// suspended, whether the run belongs to the tenant, and all values of the request. It appends what
// changed to the audit. The packages above it authenticate callers, decode requests and encode
// results; they make none of these checks.
//
// Outside are authentication, limits on connections and on the memory of requests, the login of the page,
// and streams of events and waits, which package internal/gateway/stream has. It reads runs through
// [Runs].
package service
