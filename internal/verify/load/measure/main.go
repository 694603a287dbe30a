// Command measure puts deployments under load and prints the measurements.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/verify/load"
)

func main() {
	var cfg load.Config
	app.Parse(&cfg, "measure", "Puts deployments under load and prints what it took.")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	report, err := load.Run(ctx, cfg, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, report)
	if report.Failed() {
		os.Exit(1)
	}
}
