package turnpike

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// bridge returns a logger that writes to l. Nil makes no log.
func bridge(l *slog.Logger) zerolog.Logger {
	if l == nil {
		return zerolog.Nop()
	}
	return zerolog.New(slogWriter{l.Handler()})
}

// slogWriter hands the lines of zerolog, which are JSON objects, to a handler.
type slogWriter struct{ handler slog.Handler }

func (w slogWriter) Write(line []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel implements zerolog.LevelWriter.
func (w slogWriter) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	ctx, to := context.Background(), slogLevel(level)
	if !w.handler.Enabled(ctx, to) {
		return len(line), nil
	}
	fields := map[string]any{}
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	message, _ := fields[zerolog.MessageFieldName].(string)
	r := slog.NewRecord(time.Now(), to, message, 0)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != zerolog.MessageFieldName && name != zerolog.LevelFieldName {
			r.AddAttrs(slog.Any(name, fields[name]))
		}
	}
	return len(line), w.handler.Handle(ctx, r)
}

func slogLevel(level zerolog.Level) slog.Level {
	switch {
	case level == zerolog.NoLevel:
		return slog.LevelInfo
	case level <= zerolog.DebugLevel:
		return slog.LevelDebug
	case level == zerolog.InfoLevel:
		return slog.LevelInfo
	case level == zerolog.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}
