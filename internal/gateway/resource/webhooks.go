package resource

import (
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Webhooks reads the events that webhooks have not accepted yet, and makes test events.
type Webhooks struct{ webhooks *service.Webhooks }

// NewWebhooks returns the handlers of pending and test events.
func NewWebhooks(w *service.Webhooks) *Webhooks { return &Webhooks{w} }

// Pending responds with a page of pending events.
func (h *Webhooks) Pending(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, h.webhooks.Pending)
}

// Test stores a test event, which a worker sends; the response has its id for GetTest.
func (h *Webhooks) Test(w http.ResponseWriter, r *http.Request) error {
	var request api.WebhookTestRequest
	if _, err := exchange.Decode(r, &request); err != nil {
		return err
	}
	t, err := h.webhooks.Test(r.Context(), access.FromContext(r.Context()), request)
	if err == nil {
		w.Header().Set("Location", "/v1/webhooks/tests/"+t.ID)
	}
	return reply(w, http.StatusAccepted, t, err)
}

// GetTest responds with a test event and its result so far.
func (h *Webhooks) GetTest(w http.ResponseWriter, r *http.Request) error {
	t, err := h.webhooks.GetTest(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	return reply(w, http.StatusOK, t, err)
}
