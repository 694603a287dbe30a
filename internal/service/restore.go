package service

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// restoreShown is the maximum number of runs that GET /v1/restore lists.
	restoreShown = 1000

	// restoreTimeout bounds a report or a decision, which read each run in flight.
	restoreTimeout = 10 * time.Minute
)

// registerWaiting registers the metric that is 1 while a deployment waits for a decision about its store. It succeeds
// if the worker of the same process has registered the metric.
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

// Restores reports and decides about an older copy of the store. Reports and decisions concern the runs of all tenants.
type Restores struct{ *core }

// Report returns the consequences of a decision about the store.
func (s *Restores) Report(ctx context.Context, c access.Caller) (api.Restore, error) {
	if err := s.permit(ctx, c, ReadRestore); err != nil {
		return api.Restore{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	return s.cfg.Restore.Report(ctx, restoreShown)
}

// Accept lets the runs of the store continue.
func (s *Restores) Accept(ctx context.Context, c access.Caller) (api.RestoreDecided, error) {
	return s.decide(ctx, c, Accept, s.cfg.Restore.Accept)
}

// Abandon cancels the runs in flight of the store.
func (s *Restores) Abandon(ctx context.Context, c access.Caller) (api.RestoreDecided, error) {
	return s.decide(ctx, c, Abandon, func(ctx context.Context) (api.RestoreDecided, error) {
		return s.cfg.Restore.Abandon(ctx, c.By(), s.cfg.RedeliveryDelay)
	})
}

// decide carries out a decision of an operator of the deployment, even if the caller leaves.
func (s *Restores) decide(ctx context.Context, c access.Caller, o Operation, decide func(context.Context) (api.RestoreDecided, error)) (api.RestoreDecided, error) {
	if err := s.permit(ctx, c, o); err != nil {
		return api.RestoreDecided{}, err
	}
	if !c.OfDeployment(access.Operator) && !c.OfDeployment(access.Admin) {
		return api.RestoreDecided{}, problem(denied, api.CodeForbidden, "%s may not decide about the store of the deployment: use a key of tenant * with the role operator or admin", c.Principal.Name)
	}
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	decided, err := decide(lasting)
	s.note(ctx, c, o, "", err)
	if err != nil {
		return api.RestoreDecided{}, err
	}
	s.log.Warn("an operator decided about an older copy of the store", "decision", decided.Decision, "principal", c.Principal.Name, "epoch", decided.Epoch, "cancelled", decided.Cancelled, "hint", "see docs/how-to/restore-the-store.md for what happens next")
	return decided, nil
}
