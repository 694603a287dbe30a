package resource

import (
	"net/http"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/service"
)

// Stats reads figures over time.
type Stats struct{ stats *service.Stats }

// NewStats returns the handler of figures.
func NewStats(s *service.Stats) *Stats { return &Stats{s} }

// Get responds with figures.
func (h *Stats) Get(w http.ResponseWriter, r *http.Request) error {
	q, err := service.ParseStats(r.URL.Query())
	if err != nil {
		return err
	}
	stats, err := h.stats.Read(r.Context(), access.FromContext(r.Context()), q)
	return reply(w, http.StatusOK, stats, err)
}
