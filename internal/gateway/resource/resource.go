// Package resource has the HTTP handlers of a gateway, by resource: runs, agents, tenants and so on. A handler decodes
// a request, calls package service, which makes every check, and encodes the result. Its types are safe for concurrent
// use.
package resource

import (
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// headerKey is the header with the idempotency key of a request.
const headerKey = "Idempotency-Key"

// reply responds with the result of a call of the service, or returns err.
func reply[T any](w http.ResponseWriter, status int, v T, err error) error {
	if err != nil {
		return err
	}
	return exchange.Reply(w, status, v)
}

// accepted responds with a run that was changed.
func accepted(w http.ResponseWriter, st state.State, err error) error {
	if err != nil {
		return err
	}
	return exchange.Reply(w, http.StatusAccepted, api.RunOf(st, time.Now()))
}

// created responds with a run that was created.
func created(w http.ResponseWriter, st state.State, err error) error {
	if err == nil {
		w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	}
	return accepted(w, st, err)
}

// decodeNamed decodes the body of a PUT into v, which has the type that GET responds with: a client may send back the
// document that it has read. name is the field of v with the name, which must be empty or equal to the name in the
// path. The service sets the other fields that are not settings, so their values in the body have no effect.
func decodeNamed(r *http.Request, v any, name *string) error {
	if _, err := exchange.Decode(r, v); err != nil {
		return err
	}
	if path := r.PathValue("name"); *name != "" && *name != path {
		return exchange.Invalid("the body has the name %.60q, but the path has %.60q: omit name, or send the same name", *name, path)
	}
	return nil
}
