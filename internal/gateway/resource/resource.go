// Package resource has the HTTP handlers of a gateway by resource: runs, agents, tenants and so on. A
// handler decodes a request, calls package service, which makes every check, and encodes the result.
// The types of this package are safe for concurrent use.
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

// reply responds with the result of a call of the service.
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
