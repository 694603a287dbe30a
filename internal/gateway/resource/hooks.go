package resource

import (
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Hooks reads and changes hooks, and receives deliveries to them.
type Hooks struct {
	hooks   *service.Hooks
	maxBody int64
}

// NewHooks returns the handlers of hooks. A delivery may have at most maxBody bytes.
func NewHooks(h *service.Hooks, maxBody int64) *Hooks { return &Hooks{h, maxBody} }

// List responds with a page of hooks.
func (h *Hooks) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, h.hooks.List)
}

// Get responds with a hook.
func (h *Hooks) Get(w http.ResponseWriter, r *http.Request) error {
	hook, err := h.hooks.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"))
	return reply(w, http.StatusOK, hook, err)
}

// Put creates a hook, or replaces its settings.
func (h *Hooks) Put(w http.ResponseWriter, r *http.Request) error {
	var sent api.Hook
	if err := decodeNamed(r, &sent, &sent.Name); err != nil {
		return err
	}
	hook, first, err := h.hooks.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), sent.HookSettings)
	status := http.StatusOK
	if first {
		status = http.StatusCreated
	}
	return reply(w, status, hook, err)
}

// Delete removes a hook.
func (h *Hooks) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, h.hooks.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

// senders is the owner of the memory of deliveries to unknown hooks. senders with the address of a hook,
// such as "*hooks/acme/triage", is the owner of the memory of deliveries to that hook. So senders without
// the secret of a hook cannot use up the memory of its tenant, only that of deliveries to the same hook.
const senders = "*hooks"

// Deliver receives a delivery, which is signed instead of authenticated. It responds once the effect is durable.
func (h *Hooks) Deliver(w http.ResponseWriter, r *http.Request) error {
	tenant := r.PathValue("tenant")
	if named := r.URL.Query().Get(exchange.ParameterTenant); named != "" && tenant == "" {
		tenant = named
	}
	hook, err := h.hooks.Known(r.Context(), tenant, r.PathValue("name"))
	if err != nil {
		return err
	}
	if err := exchange.AdmitUnsigned(r, senders+hook, h.maxBody); err != nil {
		return err
	}
	body, err := exchange.ReadBody(r)
	if err != nil {
		return err
	}
	out, err := h.hooks.Deliver(r.Context(), service.Arrival{
		Tenant: tenant, Hook: r.PathValue("name"), Trace: r.Header.Get(span.Header),
		Delivery: hookin.Delivery{Body: body, Header: r.Header, At: time.Now()},
	})
	switch {
	case err != nil:
		return err
	case out.Challenge != "":
		return exchange.Reply(w, http.StatusOK, map[string]string{"challenge": out.Challenge})
	case out.NoBody: // Slack shows a body to the person who used a command
		w.WriteHeader(http.StatusOK)
		return nil
	case out.Result.Ignored:
		return exchange.Reply(w, http.StatusOK, out.Result)
	default:
		return exchange.Reply(w, http.StatusAccepted, out.Result)
	}
}
