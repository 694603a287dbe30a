// Command gateway serves Turnpike's API and takes submissions from NATS.
package main

import (
	"context"

	"github.com/turnpike-dev/turnpike/internal/app"
)

type config struct {
	app.Config
	app.GatewayConfig
	app.TenantConfig
	app.DrainConfig
}

func main() {
	app.Main("gateway", "Serves Turnpike's API and takes submissions from NATS.", run)
}

func run(ctx context.Context, cfg config) error {
	listener, err := app.Listen(cfg.Addr)
	if err != nil {
		return err
	}
	if err := cfg.Guard(listener.Addr(), cfg.Log.Logger()); err != nil {
		return err
	}
	app.QuietRedis(cfg.Log.Logger())
	d, err := app.Open(ctx, cfg.Config, nil, "turnpike-gateway", nil)
	if err != nil {
		return err
	}
	defer d.Close()
	settings, err := cfg.GatewayConfig.Gateway(d, cfg.Tenant)
	if err != nil {
		return err
	}
	settings.Drain = cfg.Drain
	g, err := d.NewGateway(settings)
	if err != nil {
		return err
	}
	log := d.Config().Logger
	log.Info().Str("addr", listener.Addr().String()).Msg("gateway started")
	return g.Serve(ctx, listener)
}
