package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// restoreShown is the number of runs that GET /v1/restore lists.
	restoreShown = 1000

	// restoreTimeout bounds a report and a decision, which read each run in flight.
	restoreTimeout = 10 * time.Minute
)

// registerWaiting registers the metric of deployments that wait for a decision about their store.
// The worker of the same process may have it.
func registerWaiting(registry *prometheus.Registry, r *restore.Review) error {
	err := registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_" + restore.Name, Help: restore.MetricText}, func() float64 {
		if r.Waiting() {
			return 1
		}
		return 0
	}))
	if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); twice {
		return nil
	}
	return err
}

// getRestore is for those who may look at the whole deployment: it names runs of all tenants.
func (g *Gateway) getRestore(w http.ResponseWriter, r *http.Request) error {
	if err := ofDeployment(r, "the restore"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), restoreTimeout)
	defer cancel()
	report, err := g.cfg.Restore.Report(ctx, restoreShown)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, report)
}

func (g *Gateway) postAccept(w http.ResponseWriter, r *http.Request) error {
	return g.decideRestore(w, r, func(ctx context.Context, _ access.Caller) (api.RestoreDecided, error) {
		return g.cfg.Restore.Accept(ctx)
	})
}

func (g *Gateway) postAbandon(w http.ResponseWriter, r *http.Request) error {
	return g.decideRestore(w, r, func(ctx context.Context, c access.Caller) (api.RestoreDecided, error) {
		return g.cfg.Restore.Abandon(ctx, c.By(), g.cfg.RedeliveryDelay)
	})
}

// decideRestore carries out a decision of an operator of the deployment, even if the client leaves.
func (g *Gateway) decideRestore(w http.ResponseWriter, r *http.Request, decide func(context.Context, access.Caller) (api.RestoreDecided, error)) error {
	c := access.FromContext(r.Context())
	if !c.OfDeployment(access.Operator) && !c.OfDeployment(access.Admin) {
		return problem(http.StatusForbidden, api.CodeForbidden, "%s may not decide this: an operator or admin of the deployment, tenant *, may", c.Principal.Name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restoreTimeout)
	defer cancel()
	decided, err := decide(ctx, c)
	if err != nil {
		return err
	}
	g.log.Warn("an operator decided about an older copy of the store", "decision", decided.Decision, "principal", c.Principal.Name, "epoch", decided.Epoch, "cancelled", decided.Cancelled, "hint", "docs/how-to/restore-the-store.md")
	return reply(w, http.StatusOK, decided)
}
