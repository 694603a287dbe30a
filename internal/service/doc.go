// Package service makes every check and every change that a caller can request, however the request arrived: over HTTP,
// over the bus, or from a program in the same process. It imports neither HTTP nor the NATS client.
//
// A method takes the caller and a typed request, and returns a typed value or an error. [ProblemOf] converts the error
// to the problem that the caller sees. The method checks the caller's roles, whether the tenant is suspended, whether
// the run belongs to the tenant, and all values of the request. It appends changes to the audit. A list has only what
// belongs to the caller's tenant, unless its comment says otherwise. The packages above it authenticate callers, decode
// requests and encode results; they make none of these checks.
//
// The packages below internal/gateway own what belongs to a connection: authentication, limits on connections and on
// the memory of requests, and the login of the page. Event streams and waits for the end of a run are in
// internal/gateway/stream, which reads runs through [Runs].
package service
