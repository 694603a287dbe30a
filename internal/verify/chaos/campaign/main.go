// Command campaign breaks deployments at random and checks that nothing was lost.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/verify/chaos"
)

func main() {
	var cfg chaos.Config
	app.Parse(&cfg, "campaign", "Breaks deployments at random and checks that nothing was lost.")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	report, err := chaos.Run(ctx, cfg, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, report)
	if len(report.Violations) > 0 {
		os.Exit(1)
	}
}
