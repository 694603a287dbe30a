package resource

import (
	"context"
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Letters reads and replays dead letters.
type Letters struct{ letters *service.Letters }

// NewLetters returns the handlers of dead letters.
func NewLetters(l *service.Letters) *Letters { return &Letters{l} }

// List responds with a page of dead letters.
func (l *Letters) List(w http.ResponseWriter, r *http.Request) error {
	after, err := exchange.After(r)
	if err != nil {
		return err
	}
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (api.Page[api.DeadLetter], error) {
		return l.letters.List(ctx, c, after, p)
	}, "after")
}

// Get responds with a dead letter.
func (l *Letters) Get(w http.ResponseWriter, r *http.Request) error {
	letter, err := l.letters.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("seq"))
	return reply(w, http.StatusOK, letter, err)
}

// Replay replays a dead letter: see service.Letters.Replay.
func (l *Letters) Replay(w http.ResponseWriter, r *http.Request) error {
	letter, err := l.letters.Replay(r.Context(), access.FromContext(r.Context()), r.PathValue("seq"))
	return reply(w, http.StatusAccepted, letter, err)
}

// Restores reports on a store that was restored from an older copy, and carries out the decision about it.
type Restores struct{ restores *service.Restores }

// NewRestores returns the handlers for the decision about a store that was restored from an older copy.
func NewRestores(r *service.Restores) *Restores { return &Restores{r} }

// Get responds with the runs and calls that the decision affects.
func (h *Restores) Get(w http.ResponseWriter, r *http.Request) error {
	report, err := h.restores.Report(r.Context(), access.FromContext(r.Context()))
	return reply(w, http.StatusOK, report, err)
}

// Accept lets the runs in the older copy continue.
func (h *Restores) Accept(w http.ResponseWriter, r *http.Request) error {
	decided, err := h.restores.Accept(r.Context(), access.FromContext(r.Context()))
	return reply(w, http.StatusOK, decided, err)
}

// Abandon cancels the runs in flight in the older copy.
func (h *Restores) Abandon(w http.ResponseWriter, r *http.Request) error {
	decided, err := h.restores.Abandon(r.Context(), access.FromContext(r.Context()))
	return reply(w, http.StatusOK, decided, err)
}

// Fleet reads workers and queues.
type Fleet struct{ fleet *service.Fleet }

// NewFleet returns the handlers of workers and queues.
func NewFleet(f *service.Fleet) *Fleet { return &Fleet{f} }

// Workers responds with a page of workers.
func (f *Fleet) Workers(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, f.fleet.Workers)
}

// Queues responds with the queues of turns, and the number of runs by status.
func (f *Fleet) Queues(w http.ResponseWriter, r *http.Request) error {
	q, err := f.fleet.Queues(r.Context(), access.FromContext(r.Context()))
	return reply(w, http.StatusOK, q, err)
}
