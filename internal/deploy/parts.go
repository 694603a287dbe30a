package deploy

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/streamin"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// NewWorker returns a worker of the deployment, which takes turns while its Run is in progress. cfg configures the
// worker's tools, loops, hooks and models. LeaseDuration, EventFeed and Logger are those of the deployment, and another
// LeaseDuration in cfg is refused; MaxResult, Registry, Tracer with TraceContent, and Meter are those of the deployment
// if cfg has none. Without an ID the worker is named after the host, with a random part. Without a Policy it reads the
// policies in the store. The error names settings that are invalid or contradict those of the deployment.
func (d *Deployment) NewWorker(cfg worker.Config) (*worker.Worker, error) {
	if cfg.LeaseDuration != 0 && cfg.LeaseDuration != d.cfg.Lease {
		return nil, fmt.Errorf("LeaseDuration of the worker is %s, that of its deployment is %s: set the same in both, or leave that of the worker unset", cfg.LeaseDuration, d.cfg.Lease)
	}
	if err := relations(d.cfg, cfg); err != nil {
		return nil, err
	}
	cfg.LeaseDuration, cfg.EventFeed, cfg.Logger = d.cfg.Lease, d.cfg.EventFeed, d.cfg.Logger
	if cfg.ID == "" {
		cfg.ID = newID()
	}
	if cfg.Policy == nil {
		cfg.Policy = policy.NewReader(d.Store).Of
	}
	cfg.Restore = d.watch
	cfg.MaxResult = cmp.Or(cfg.MaxResult, d.cfg.MaxResult)
	if cfg.Registry == nil {
		cfg.Registry = d.cfg.Registry
	}
	if cfg.Tracer == nil {
		cfg.Tracer, cfg.TraceContent = d.cfg.Tracer, d.cfg.TraceContent
	}
	if cfg.Meter == nil {
		cfg.Meter = d.cfg.Meter
	}
	return worker.New(d.Store, d.Bus, cfg)
}

// newID returns the name of the host with a random part, which no other worker has.
func newID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	id := ulid.Make().String()
	return host + "-" + id[len(id)-6:]
}

// NewGateway returns a gateway of the deployment. Its Serve answers requests on a listener; to use a server of its own,
// the caller calls Run and serves Handler. Prefix and Logger are those of the deployment; so are MaxResult, Registry
// and Tracer if cfg has none. Services and Streams are by default those in the NATS of the deployment. Of each period
// of the two retentions the shorter one applies. If workers have kinds of tool, kinds of hook, providers or loops in
// addition to the built-in ones, cfg must name them: the gateway refuses definitions that use others.
func (d *Deployment) NewGateway(cfg gateway.Config) (*gateway.Gateway, error) {
	cfg.Prefix, cfg.Logger, cfg.Retention = d.cfg.Prefix, d.cfg.Logger, cfg.Retention.Tighter(d.cfg.Retention)
	cfg.MaxResult = cmp.Or(cfg.MaxResult, d.cfg.MaxResult)
	cfg.Restore = d.review
	if cfg.Registry == nil {
		cfg.Registry = d.cfg.Registry
	}
	if cfg.Tracer == nil {
		cfg.Tracer = d.cfg.Tracer
	}
	if cfg.Services == nil && d.NATS != nil {
		cfg.Services = lookup.NewServices(func(ctx context.Context, tenant string) ([]string, error) {
			return toolkit.ServedSubjects(ctx, d.NATS, d.cfg.Prefix, tenant)
		}).Of
	}
	if cfg.Streams == nil && d.NATS != nil {
		streams, err := streamin.New(d.NATS, d.cfg.NATSDomain, d.cfg.Prefix)
		if err != nil {
			return nil, fmt.Errorf("open JetStream: %w", err)
		}
		cfg.Streams = streams
	}
	return gateway.New(d.Store, d.Bus, cfg)
}
