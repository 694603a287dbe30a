// Package service makes every check and every change that a caller can request, whichever way the
// request came: over HTTP, over the bus, or from a program of the same process. It imports neither
// HTTP nor the NATS client.
//
// A method takes the caller and a typed request, and returns a typed value or an error. [ProblemOf]
// converts the error to the problem that the caller sees. It checks the caller's roles, whether the
// tenant is suspended, whether the run belongs to the tenant, and all values of the request. It
// appends what changed to the audit. The packages above it authenticate callers, decode requests
// and encode results; they make none of these checks.
//
// The packages below internal/gateway own what belongs to a connection: authentication, limits on
// connections and on the memory of requests, and the login of the page. Event streams and waits for
// the end of a run are in internal/gateway/stream, which reads runs through [Runs].
package service
