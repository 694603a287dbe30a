package resource

import (
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Triggers reads and changes triggers.
type Triggers struct{ triggers *service.Triggers }

// NewTriggers returns the handlers of triggers.
func NewTriggers(t *service.Triggers) *Triggers { return &Triggers{t} }

// List responds with a page of triggers.
func (h *Triggers) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, h.triggers.List)
}

// Get responds with a trigger and its status.
func (h *Triggers) Get(w http.ResponseWriter, r *http.Request) error {
	t, err := h.triggers.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"))
	return reply(w, http.StatusOK, t, err)
}

// Put creates a trigger, or replaces its settings.
func (h *Triggers) Put(w http.ResponseWriter, r *http.Request) error {
	var sent api.Trigger
	if err := decodeNamed(r, &sent, &sent.Name); err != nil {
		return err
	}
	t, first, err := h.triggers.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), sent.TriggerSettings)
	status := http.StatusOK
	if first {
		status = http.StatusCreated
	}
	return reply(w, status, t, err)
}

// Delete removes a trigger.
func (h *Triggers) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, h.triggers.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}
