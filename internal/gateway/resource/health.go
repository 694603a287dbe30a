package resource

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// readyTimeout bounds the probe of the store, and busReadyTimeout that of the bus. The latter is shorter: a gateway
	// works without the bus, and must respond before the prober's timeout.
	readyTimeout    = 3 * time.Second
	busReadyTimeout = 500 * time.Millisecond

	// outageRepeat is the minimum time between two log lines about the same failure of a dependency.
	outageRepeat = time.Minute
)

// Bus has the methods of bus.Bus that Health needs.
type Bus interface {
	Ready(ctx context.Context) error
	IntakeReady(ctx context.Context) error
}

// Store has the method of state.Store that Health needs.
type Store interface {
	Ready(ctx context.Context) error
}

// HealthConfig is the configuration of a Health. All fields except Log are optional.
type HealthConfig struct {
	Restore  *restore.Review
	Checks   func(ctx context.Context) []state.Finding
	Draining func() bool // the process is about to end
	Log      *slog.Logger
}

// Health responds to probes.
type Health struct {
	bus     Bus
	store   Store
	cfg     HealthConfig
	outages outages
}

// NewHealth returns the handlers of probes.
func NewHealth(b Bus, store Store, cfg HealthConfig) *Health {
	return &Health{bus: b, store: store, cfg: cfg, outages: outages{log: cfg.Log, lost: map[string]*outage{}}}
}

// Live responds with status 200, which shows that the process responds at all.
func (*Health) Live(w http.ResponseWriter, _ *http.Request) error {
	return exchange.Reply(w, http.StatusOK, map[string]string{"status": "ok"})
}

// Ready probes the bus and the store, and responds with their state. The status is 503 if the store is not ready, a
// finding of Checks is fatal, or the process is about to end. Without the bus a gateway is degraded, with status 200:
// it reads and stores runs, and sweepers publish them later. It is also degraded while the deployment waits for a
// decision about its store, because operators decide through the gateway.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) error {
	answer := api.Readiness{Status: "ok", Restore: "ok", Findings: []state.Finding{}}
	if h.cfg.Restore.Waiting() {
		answer.Restore = h.cfg.Restore.Status().String()
	}
	var probes sync.WaitGroup
	probes.Go(func() { answer.Bus = h.probe(r.Context(), "bus", busReadyTimeout, h.busReady) })
	probes.Go(func() { answer.Store = h.probe(r.Context(), "store", readyTimeout, h.store.Ready) })
	if h.cfg.Checks != nil {
		probes.Go(func() {
			ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
			defer cancel()
			answer.Findings = append(answer.Findings, h.cfg.Checks(ctx)...)
		})
	}
	probes.Wait()
	status := http.StatusServiceUnavailable
	switch {
	case h.cfg.Draining != nil && h.cfg.Draining():
		answer.Status = "draining"
	case answer.Store != "ok" || check.Err(answer.Findings) != nil:
		answer.Status = "unavailable"
	case answer.Bus != "ok" || answer.Restore != "ok":
		answer.Status, status = "degraded", http.StatusOK
	default:
		status = http.StatusOK
	}
	return exchange.Reply(w, status, answer)
}

// busReady returns nil if turns can be published, and clients can publish submissions and aborts.
func (h *Health) busReady(ctx context.Context) error {
	if err := h.bus.Ready(ctx); err != nil {
		return err
	}
	return h.bus.IntakeReady(ctx)
}

// probe calls ready and returns a text for the response: "ok", or what is wrong.
func (h *Health) probe(prober context.Context, what string, within time.Duration, ready func(context.Context) error) string {
	ctx, cancel := context.WithTimeout(prober, within)
	defer cancel()
	err, found := ready(ctx), "ok"
	switch {
	case errors.Is(err, check.ErrNoWrites):
		found = check.ErrNoWrites.Error()
	case err != nil:
		found = "does not answer"
	}
	if prober.Err() == nil { // if the prober has left, the error says nothing about the dependency
		h.outages.note(what, found, err)
	}
	return found
}

// outages logs when a dependency is lost and when it is ready again. Probes arrive every few seconds, so a line for
// each would hide other lines.
type outages struct {
	log *slog.Logger

	mu   sync.Mutex
	lost map[string]*outage // by dependency
}

type outage struct {
	since, logged time.Time
	found         string
}

// note records the result of a probe. err is nil if the dependency is ready; found is the text for the log.
func (o *outages) note(dependency, found string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, lost := time.Now(), o.lost[dependency]
	switch {
	case err == nil && lost != nil:
		delete(o.lost, dependency)
		o.log.Info("dependency is ready again", "dependency", dependency, "lost_ms", now.Sub(lost.since).Milliseconds())
		return
	case err == nil:
		return
	case lost == nil:
		lost = &outage{since: now}
		o.lost[dependency] = lost
	}
	if lost.found == found && now.Sub(lost.logged) < outageRepeat {
		return
	}
	lost.found, lost.logged = found, now
	o.log.Error("dependency "+found, "error", err, "dependency", dependency, "lost_ms", now.Sub(lost.since).Milliseconds(), "hint", "find the cause with `turnpike doctor`")
}
