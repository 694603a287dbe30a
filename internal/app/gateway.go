package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// GatewayProcess holds the settings of a gateway process.
type GatewayProcess struct {
	Config
	GatewayConfig
	TenantConfig
	SecretsConfig
	DrainConfig
	AdminConfig
	HeartbeatConfig
}

// ServeGateway runs a gateway, as the command gateway does, until ctx ends.
func ServeGateway(ctx context.Context, cfg GatewayProcess) error {
	if err := cfg.Check(cfg.Heartbeat); err != nil {
		return err
	}
	secrets, err := HookSecrets(cfg.SecretsDir)
	if err != nil {
		return err
	}
	certificate, err := cfg.Certificate(ctx, cfg.Log.Logger())
	if err != nil {
		return err
	}
	listener, err := Listen(cfg.Addr)
	if err != nil {
		return err
	}
	if err := cfg.Guard(listener.Addr(), cfg.Log.Logger()); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	QuietRedis(cfg.Log.Logger())
	d, err := Open(ctx, cfg.Config, nil, "turnpike-gateway", registry)
	if err != nil {
		return err
	}
	defer d.Close()
	settings, err := cfg.GatewayConfig.Gateway(d, cfg.Tenant)
	if err != nil {
		return err
	}
	settings.HookSecret = secrets
	settings.ShutdownDelay, settings.DisableMetricsRoute = cfg.Drain, cfg.AdminAddr != ""
	g, err := d.NewGateway(settings)
	if err != nil {
		return err
	}
	log := d.Config().Logger
	log.Info("gateway started", "addr", listener.Addr().String())
	admin := Admin{Addr: cfg.AdminAddr, Hosts: cfg.Hosts, Certificate: certificate, Registry: registry, Readyz: g.Handler(), Log: d.Config().Logger}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return admin.Beside(ctx, func(ctx context.Context) error { return g.Serve(ctx, certificate.Wrap(listener)) })
	})
	group.Go(func() error {
		WarnOfProvider(ctx, settings.Login, log)
		return nil
	})
	return group.Wait()
}
