// Command gateway serves Turnpike's API and takes submissions from NATS.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/app"
)

type config struct {
	app.Config
	app.GatewayConfig
}

func main() {
	var cfg config
	app.Parse(&cfg, "gateway", "Serves Turnpike's API and takes submissions from NATS.")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1) //nolint:gocritic // stop only restores signals
	}
}

func run(ctx context.Context, cfg config) error {
	listener, err := app.Listen(cfg.Addr)
	if err != nil {
		return err
	}
	site, err := app.Open(ctx, cfg.Config, "turnpike gateway")
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.Trace(ctx, "turnpike-gateway"); err != nil {
		return err
	}
	site.Log.Info().Str("addr", listener.Addr().String()).Msg("gateway started")
	site.Hosts, site.Tenant = cfg.Hosts, cfg.Tenant
	return site.Serve(ctx, listener, prometheus.NewRegistry())
}
