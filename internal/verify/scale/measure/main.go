// Command measure checks deployments against the bars of many runs at once, and prints the
// measurements.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/verify/scale"
)

func main() {
	var cfg scale.Config
	app.Parse(&cfg, "measure", "Holds deployments to the bars of many runs at once.")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	report, err := scale.Run(ctx, cfg, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, report)
	if report.Failed() {
		os.Exit(1)
	}
}
