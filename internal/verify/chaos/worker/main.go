// Command worker is the worker of a fault campaign: the real one, with tools that
// write to a ledger, and with noise on its store and its bus.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/verify/chaos"
)

func main() {
	var cfg chaos.WorkerConfig
	app.Parse(&cfg, "worker", "The worker of a fault campaign.")
	if err := chaos.Work(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}
