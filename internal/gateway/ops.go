package gateway

import (
	"context"
	_ "embed"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

//go:embed openapi.json
var openAPIDocument []byte

func openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPIDocument) // the reader may be gone
	return nil
}

// healthz says that the process answers.
func (*Gateway) healthz(w http.ResponseWriter, _ *http.Request) error {
	return exchange.Reply(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyTimeout bounds the look at the store. The one at the bus is shorter: without the bus
// the gateway serves all the same, and says so before a prober loses patience.
const (
	readyTimeout    = 3 * time.Second
	busReadyTimeout = 500 * time.Millisecond
)

// readyz says whether bus and store can be reached now. Each is asked by itself, so that the
// silence of one is not taken for that of the other. A gateway without the bus is degraded
// and not unready: it reads and stores runs, and sweepers publish them later. So is one whose
// deployment waits for a decision about its store: operators decide through it.
func (g *Gateway) readyz(w http.ResponseWriter, r *http.Request) error {
	answer := api.Readiness{Status: "ok", Restore: "ok", Findings: []state.Finding{}}
	if g.cfg.Restore.Waiting() {
		answer.Restore = g.cfg.Restore.Status().String()
	}
	var probes sync.WaitGroup
	probes.Go(func() { answer.Bus = g.probe(r.Context(), "bus", busReadyTimeout, g.busReady) })
	probes.Go(func() { answer.Store = g.probe(r.Context(), "store", readyTimeout, g.store.Ready) })
	if g.cfg.Checks != nil {
		probes.Go(func() {
			ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
			defer cancel()
			answer.Findings = append(answer.Findings, g.cfg.Checks(ctx)...)
		})
	}
	probes.Wait()
	status := http.StatusServiceUnavailable
	switch {
	case g.server.Draining():
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
func (g *Gateway) busReady(ctx context.Context) error {
	if err := g.bus.Ready(ctx); err != nil {
		return err
	}
	return g.bus.IntakeReady(ctx)
}

// probe asks one dependency, and returns what /readyz says of it.
func (g *Gateway) probe(asked context.Context, what string, within time.Duration, ready func(context.Context) error) string {
	ctx, cancel := context.WithTimeout(asked, within)
	defer cancel()
	err, found := ready(ctx), "ok"
	switch {
	case errors.Is(err, check.ErrNoWrites):
		found = check.ErrNoWrites.Error()
	case err != nil:
		found = "does not answer"
	}
	if asked.Err() == nil { // else the prober has left, which says nothing of the dependency
		g.outages.note(what, found, err)
	}
	return found
}

func (g *Gateway) getMetrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(g.cfg.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}
