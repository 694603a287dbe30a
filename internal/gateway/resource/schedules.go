package resource

import (
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Schedules reads and changes schedules.
type Schedules struct{ schedules *service.Schedules }

// NewSchedules returns the handlers of schedules.
func NewSchedules(s *service.Schedules) *Schedules { return &Schedules{s} }

// List responds with a page of schedules.
func (h *Schedules) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, h.schedules.List)
}

// Get responds with a schedule.
func (h *Schedules) Get(w http.ResponseWriter, r *http.Request) error {
	s, err := h.schedules.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("name"))
	return reply(w, http.StatusOK, s, err)
}

// Put creates a schedule, or replaces its settings.
func (h *Schedules) Put(w http.ResponseWriter, r *http.Request) error {
	var sent api.Schedule
	if err := decodeNamed(r, &sent, &sent.Name); err != nil {
		return err
	}
	s, first, err := h.schedules.Put(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), sent.ScheduleSettings)
	status := http.StatusOK
	if first {
		status = http.StatusCreated
	}
	return reply(w, status, s, err)
}

// Delete removes a schedule.
func (h *Schedules) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, h.schedules.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("name")))
}

// Pause pauses a schedule.
func (h *Schedules) Pause(w http.ResponseWriter, r *http.Request) error {
	s, err := h.schedules.Pause(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), true)
	return reply(w, http.StatusOK, s, err)
}

// Resume resumes a paused schedule, for instants after that.
func (h *Schedules) Resume(w http.ResponseWriter, r *http.Request) error {
	s, err := h.schedules.Pause(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), false)
	return reply(w, http.StatusOK, s, err)
}

// Run starts the run of a schedule now, even if the schedule is paused.
func (h *Schedules) Run(w http.ResponseWriter, r *http.Request) error {
	st, err := h.schedules.Run(r.Context(), access.FromContext(r.Context()), r.PathValue("name"), r.Header.Get(headerKey))
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	return exchange.Reply(w, http.StatusAccepted, api.RunOf(st, time.Now()))
}
