package upkeep

import (
	"context"
	"log/slog"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
)

// foldInterval is the time between two folds of the hourly figures by a worker.
const foldInterval = time.Minute

// folding is the part of a store that FoldFigures needs.
type folding interface {
	FoldFigures(ctx context.Context) error
}

// FoldFigures makes the store fold the hourly figures, once a minute, until ctx ends. It logs failures.
func FoldFigures(ctx context.Context, store folding, log *slog.Logger) {
	for clock.Pause(ctx, foldInterval) {
		once, cancel := context.WithTimeout(ctx, foldInterval)
		if err := store.FoldFigures(once); err != nil && ctx.Err() == nil {
			log.Warn("hourly statistics not aggregated in the store; the worker retries in a minute", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
		}
		cancel()
	}
}
