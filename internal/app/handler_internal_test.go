package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/rs/zerolog"
)

func TestHandlerObeysSlog(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(slog.Handler) slog.Handler{
		"bare": func(h slog.Handler) slog.Handler { return h }, "limited": limitRepeats,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			slogtest.Run(t, func(*testing.T) slog.Handler {
				out.Reset()
				return wrap(&handler{out: zerolog.New(&out)})
			}, func(t *testing.T) map[string]any {
				var line map[string]any
				if err := json.Unmarshal(out.Bytes(), &line); err != nil {
					t.Fatalf("%v: %s", err, out.Bytes())
				}
				line[slog.MessageKey] = line["message"]
				return line
			})
		})
	}
}

// named is a string type like those of ids and outcomes.
type named string

// Log lines keep their names and units, for which users search.
func TestLines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 67_800_000, time.UTC)
	var out bytes.Buffer
	h := slog.Handler(&handler{out: zerolog.New(&out), level: slog.LevelDebug})
	write := func(level slog.Level, message string, args ...any) {
		r := slog.NewRecord(at, level, message, 0)
		r.Add(args...)
		if err := h.Handle(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	write(slog.LevelDebug, "turn", "tokens", int64(7), "took", 1500*time.Microsecond)
	write(slog.LevelInfo, "gateway started", "addr", "127.0.0.1:1", "not_after", at)
	h = h.WithAttrs([]slog.Attr{slog.String("worker", "w1"), slog.Any("run_id", named("r1"))})
	write(slog.LevelWarn, "claim failed", "error", errors.New("<away>"), "outcome", named("busy"), "streams", []int{1, 2}, "panic", io.EOF)
	write(slog.LevelError, "lost", "ok", true, slog.Group("g", "n", uint64(1), "f", 0.5))
	const want = `{"level":"debug","tokens":7,"took":1.5,"time":"2026-01-02T03:04:05.067Z","message":"turn"}
{"level":"info","addr":"127.0.0.1:1","not_after":"2026-01-02T03:04:05.067Z","time":"2026-01-02T03:04:05.067Z","message":"gateway started"}
{"level":"warn","worker":"w1","run_id":"r1","error":"<away>","outcome":"busy","streams":[1,2],"panic":"EOF","time":"2026-01-02T03:04:05.067Z","message":"claim failed"}
{"level":"error","worker":"w1","run_id":"r1","ok":true,"g":{"n":1,"f":0.5},"time":"2026-01-02T03:04:05.067Z","message":"lost"}
`
	if out.String() != want {
		t.Errorf("the log is\n%s\nwant\n%s", &out, want)
	}
}

func TestLevelIsCheckedWithoutAllocation(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(limitRepeats(&handler{out: zerolog.New(&out), level: slog.LevelInfo}))
	if n := testing.AllocsPerRun(100, func() {
		log.LogAttrs(context.Background(), slog.LevelDebug, "turn", slog.Int("turn", 1))
	}); n > 0 || out.Len() > 0 {
		t.Errorf("a line below the level makes %v allocations and writes %q", n, &out)
	}
}
