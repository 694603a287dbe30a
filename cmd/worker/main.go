// Command worker takes runs through their turns.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/app"
)

type config struct {
	app.Config
	app.WorkerConfig
}

func main() {
	var cfg config
	app.Parse(&cfg, "worker", "Takes runs through their turns. Start as many as you need.")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1) //nolint:gocritic // stop only restores signals
	}
}

func run(ctx context.Context, cfg config) error {
	site, err := app.Open(ctx, cfg.Config, "turnpike worker")
	if err != nil {
		return err
	}
	defer site.Close()
	if err := site.Trace(ctx, "turnpike-worker"); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := site.Measure(ctx, "turnpike-worker", registry); err != nil {
		return err
	}
	w, err := site.Worker(cfg.WorkerConfig, nil, registry)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.Run(ctx) })
	if cfg.MetricsAddr != "" {
		group.Go(func() error { return app.ServeMetrics(ctx, cfg.MetricsAddr, registry) })
	}
	return group.Wait()
}
