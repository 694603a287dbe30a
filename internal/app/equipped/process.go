package equipped

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/app/programs"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/standard"
)

// Process holds the settings of a worker process.
type Process struct {
	app.Config
	app.WorkerConfig
	app.HostsConfig
	app.TLSConfig
}

// Serve runs a worker, as the command worker does, until ctx ends. change, if it is not nil, may
// change the worker's settings before it starts.
func Serve(ctx context.Context, cfg Process, change func(*worker.Config)) error {
	if err := cfg.Check(cfg.Heartbeat); err != nil {
		return err
	}
	settings, err := cfg.Worker()
	if err != nil {
		return err
	}
	certificate, err := cfg.Certificate(ctx, cfg.Log.Logger())
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	app.QuietRedis(cfg.Log.Logger())
	d, err := app.Open(ctx, cfg.Config, nil, "turnpike-worker", registry)
	if err != nil {
		return err
	}
	defer d.Close()
	if change != nil {
		change(&settings)
	}
	w, err := Worker(d, settings, standard.Config{HTTPAllow: cfg.HTTPAllow, ModelAllow: cfg.ModelAllow, MCPCommands: cfg.MCPCommands, Confinement: programs.Config(cfg.Programs, cfg.SecretsDir)}, cfg.MockResponses)
	if err != nil {
		return err
	}
	admin := app.Admin{Addr: cfg.MetricsAddr, Hosts: cfg.Hosts, Certificate: certificate, Registry: registry, Ready: w.Ready, Log: d.Config().Logger}
	return admin.Beside(ctx, w.Run)
}
