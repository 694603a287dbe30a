// Command worker executes the turns of runs.
package main

import (
	"context"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/app/equipped"
)

func main() {
	app.Main("worker", "Takes runs through their turns. Start as many as you need.", func(ctx context.Context, cfg equipped.Process) error {
		return equipped.Serve(ctx, cfg, nil)
	})
}
