// Package app is the code that the commands share: settings, log, telemetry and GC headroom. It
// does not link providers or kinds of tools.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/turnpike-dev/turnpike/internal/build"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/telemetry"
)

// Main is the main function of a process with settings C. It calls run, whose ctx ends at SIGINT or SIGTERM, and
// returns if run returns nil. Otherwise it prints the error and exits: with 80 after a UsageError, else with 1. It also
// exits if the settings are not valid, and for --help and --version. SIGHUP does not stop the process.
func Main[C any](name, description string, run func(ctx context.Context, cfg C) error) {
	var cfg C
	var own struct {
		Version kong.VersionFlag `name:"version" help:"Print the version and exit."`
	}
	Parse(&cfg, name, description, kong.Embed(&own), kong.Vars{"version": name + " " + build.Version() + " " + build.GoVersion()})
	// Files of certificates and passwords are read again when they change or at their next use, and
	// keys of the bus after this signal. It must not end the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, cfg)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(exitCode(err))
	}
}

// Open opens the deployment for a process that uses it until it ends, with the GC headroom and with the telemetry that
// the OTEL_* variables enable, under the name of the service. If registry is not nil, it gets the metrics of the
// process and of model calls; if it is nil, Open exports no metrics. Close of the deployment tries to send the last
// spans and metrics. If nc is not nil, Open uses that connection, and the caller closes it. At SIGHUP, until ctx ends,
// the deployment reads the file of bus keys again, if there is one.
func Open(ctx context.Context, cfg Config, nc *nats.Conn, service string, registry *prometheus.Registry) (_ *deploy.Deployment, err error) {
	undo := []func(){GCHeadroom()}
	closer := func() {
		for _, f := range undo {
			f()
		}
	}
	defer func() {
		if err != nil {
			closer()
		}
	}()
	settings := cfg.Deployment()
	settings.NATS, settings.Name, settings.Registry = nc, service, registry
	if err := warnOfVariables(settings.Logger); err != nil {
		return nil, err
	}
	traces, err := telemetry.Start(ctx, service, settings.Logger)
	if err != nil {
		return nil, err
	}
	if traces != nil {
		settings.Tracer, settings.TraceContent = traces.Provider(), traces.Content
		undo = append(undo, traces.Close)
	}
	if registry != nil {
		if err := describeProcess(registry); err != nil {
			return nil, err
		}
		meters, err := telemetry.StartMeters(ctx, service, registry, settings.Logger)
		if err != nil {
			return nil, err
		}
		settings.Meter = meters.Provider()
		undo = append(undo, meters.Close)
	}
	reload := make(chan os.Signal, 1)
	if cfg.BusKeysFile != "" { // before Open reads the file, so that no later change of it is missed
		signal.Notify(reload, syscall.SIGHUP)
	}
	d, err := deploy.Open(ctx, settings)
	if err != nil {
		signal.Stop(reload)
		return nil, err
	}
	d.OnClose(closer)
	if cfg.BusKeysFile != "" {
		go reloadKeys(ctx, d, cfg.BusKeysFile, reload)
	}
	return d, nil
}

// reloadKeys reads the keys of the bus again after each signal, until ctx ends.
func reloadKeys(ctx context.Context, d *deploy.Deployment, file string, reload chan os.Signal) {
	defer signal.Stop(reload)
	log := d.Config().Logger
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
		}
		if err := d.ReloadKeys(); err != nil {
			log.Error("new bus keys not loaded, the previous ones stay in use", "error", err, "file", file, "hint", "fix the file, and send SIGHUP again")
			continue
		}
		log.Info("bus keys loaded", "file", file)
	}
}

// describeProcess registers the metrics of Go, of the process and of the build.
func describeProcess(r *prometheus.Registry) error {
	built := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "turnpike_build_info", Help: "1, with the build of the process.", ConstLabels: prometheus.Labels{"version": build.Version(), "go_version": build.GoVersion()},
	}, func() float64 { return 1 })
	err := errors.Join(r.Register(collectors.NewGoCollector()), r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})), r.Register(built))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Listen opens the address of the API.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listening(err)
	}
	return l, nil
}
