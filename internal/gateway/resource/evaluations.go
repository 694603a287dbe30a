package resource

import (
	"context"
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Evaluations reads, stores and deletes the reports of evaluations.
type Evaluations struct{ evaluations *service.Evaluations }

// NewEvaluations returns the handlers of evaluations.
func NewEvaluations(s *service.Evaluations) *Evaluations { return &Evaluations{s} }

// List responds with a page of evaluations without their results, the newest first.
func (h *Evaluations) List(w http.ResponseWriter, r *http.Request) error {
	agent := r.URL.Query().Get("agent")
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (api.Page[api.EvaluationSummary], error) {
		return h.evaluations.List(ctx, c, agent, p)
	}, "agent")
}

// Get responds with an evaluation.
func (h *Evaluations) Get(w http.ResponseWriter, r *http.Request) error {
	e, err := h.evaluations.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	return reply(w, http.StatusOK, e, err)
}

// Put stores or replaces the report of an evaluation.
func (h *Evaluations) Put(w http.ResponseWriter, r *http.Request) error {
	var report api.EvaluationReport
	if _, err := exchange.Decode(r, &report); err != nil {
		return err
	}
	e, first, err := h.evaluations.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("id"), report)
	status := http.StatusOK
	if first {
		status = http.StatusCreated
	}
	return reply(w, status, e, err)
}

// Delete deletes an evaluation.
func (h *Evaluations) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, h.evaluations.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("id")))
}
