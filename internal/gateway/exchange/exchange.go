// Package exchange has the parts that every HTTP handler of a gateway needs. It reads and decodes request bodies within
// limits of time and memory, and encodes results, pages of lists, and problems.
package exchange

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Handler answers a request. If it returns an error, it must not have written anything: its caller then writes the
// problem of the error.
type Handler func(w http.ResponseWriter, r *http.Request) error

// HeaderRequestID is the header with the id of a request, in requests and in responses.
const HeaderRequestID = "X-Request-Id"

// HeaderTenant names the tenant of a request, for principals with roles in several tenants. A GET
// request may use ParameterTenant instead, because a browser's EventSource cannot set headers.
const (
	HeaderTenant    = "Turnpike-Tenant"
	ParameterTenant = "tenant"
)

// NamedTenant returns the tenant that a request names, or "". The error is a problem if the request names several
// different ones.
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

// NamesTenant reports whether a request names a tenant, or several.
func NamesTenant(r *http.Request) bool {
	named, err := NamedTenant(r)
	return err != nil || named != ""
}

// After returns the number of the last event that a client has received, or 0 if the request names none. It reads the
// header Last-Event-ID, else ?after=, else ?cursor=. The header comes first because a browser that reconnects repeats
// its first URL. The error is a problem.
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
		return 0, Problem(http.StatusBadRequest, api.CodeInvalidCursor, "%q is not the id of an event: in Last-Event-ID, after or cursor, send an id that the stream or the list has returned", text)
	}
	return n, nil
}

// Decode reads the body of a request, decodes it as JSON into v, and returns its bytes. It refuses unknown fields. The
// error is a problem.
func Decode(r *http.Request, v any) ([]byte, error) {
	b, err := ReadBody(r)
	if err != nil {
		return nil, err
	}
	return b, DecodeBytes(b, v)
}

// DecodeBytes decodes JSON into v. It refuses unknown fields. The error is a problem.
func DecodeBytes(b []byte, v any) error {
	if err := api.Decode(b, v); err != nil {
		return Problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
	}
	return nil
}
