// Package exchange has what every HTTP handler of a gateway needs: it reads and decodes the body of a
// request within limits of time and memory, and encodes a result, a page of a list, or a problem.
package exchange

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Handler answers a request. If it returns an error, it has written nothing, and its caller responds
// with the problem.
type Handler func(w http.ResponseWriter, r *http.Request) error

// HeaderRequestID is the header with the id of a request, in requests and in responses.
const HeaderRequestID = "X-Request-Id"

// HeaderTenant names the tenant of a request, for principals with roles in several tenants. A GET
// request may use ParameterTenant instead, because an EventSource sends no headers of its own.
const (
	HeaderTenant    = "Turnpike-Tenant"
	ParameterTenant = "tenant"
)

// NamedTenant returns the tenant that a request names, or "". A request that names several is invalid.
func NamedTenant(r *http.Request) (string, error) {
	given := r.Header.Values(HeaderTenant)
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		given = slices.Concat(given, r.URL.Query()[ParameterTenant])
	}
	if given = slices.Compact(given); len(given) > 1 {
		return "", Invalid("the request names two tenants, %.40q and %.40q: name one", given[0], given[1])
	}
	return strings.Join(given, ""), nil
}

// NamesTenant reports whether a request names a tenant.
func NamesTenant(r *http.Request) bool {
	named, err := NamedTenant(r)
	return err != nil || named != ""
}

// After returns the number of the last event that a client has. The header Last-Event-ID overrides
// ?after=, because a browser that reconnects repeats its first URL.
func After(r *http.Request) (int64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	if text == "" {
		text = r.URL.Query().Get("cursor")
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, Problem(http.StatusBadRequest, api.CodeInvalidCursor, "%q is not the id of an event: send an id that the stream has returned", text)
	}
	return n, nil
}

// Decode reads the body of a request into v and returns it. It refuses unknown fields.
func Decode(r *http.Request, v any) ([]byte, error) {
	b, err := ReadBody(r)
	if err != nil {
		return nil, err
	}
	return b, DecodeBytes(b, v)
}

// DecodeBytes decodes a body that was read into v. It refuses unknown fields.
func DecodeBytes(b []byte, v any) error {
	if err := api.Decode(b, v); err != nil {
		return Problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
	}
	return nil
}
