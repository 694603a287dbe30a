// Package app is what the commands share: settings, log, telemetry and the garbage
// collector's headroom. It links neither providers nor kinds of tools.
package app

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/build"
	"github.com/turnpike-dev/turnpike/internal/telemetry"
	"github.com/turnpike-dev/turnpike/pkg/turnpike"
)

// Main is the main function of a process with settings C: it runs until the process is
// told to stop, and exits with 1 after an error, which it prints. SIGHUP does not stop it.
func Main[C any](name, description string, run func(ctx context.Context, cfg C) error) {
	var cfg C
	var own struct {
		Version kong.VersionFlag `name:"version" help:"Print the version and exit."`
	}
	Parse(&cfg, name, description, kong.Embed(&own), kong.Vars{"version": name + " " + build.Version() + " " + build.GoVersion()})
	// Files of certificates, keys and passwords are read again when they change or at their next
	// use. A signal that asks for it only must not end the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, cfg)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(exitCode(err))
	}
}

// Open opens the deployment for a process that ends with it: with the GC headroom, and
// with the telemetry that the OTEL_* variables ask for, under the name of the service.
// The registry, if there is one, gets the metrics of the process, among them those of
// calls to models; Close sends the last spans and figures. nc, if it is not nil, is a
// connection to use, which the caller closes.
func Open(ctx context.Context, cfg Config, nc *nats.Conn, service string, registry *prometheus.Registry) (_ *turnpike.Deployment, err error) {
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
		meters, err := telemetry.StartMeters(ctx, service, registry, settings.Logger)
		if err != nil {
			return nil, err
		}
		settings.Meter = meters.Provider()
		undo = append(undo, meters.Close)
	}
	d, err := turnpike.Open(ctx, settings)
	if err != nil {
		return nil, err
	}
	d.OnClose(closer)
	return d, nil
}

// Listen opens the address of the API.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, listening(err)
	}
	return l, nil
}
