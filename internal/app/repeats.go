package app

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// repeatsShown is the number of warnings with the same message that the log has in
	// repeatsInterval. It has the number of the others at the end of the interval.
	repeatsShown    = 10
	repeatsInterval = 10 * time.Second
)

// limited is a handler that limits warnings with the same message: while a dependency is unavailable, each turn and
// each request logs the same warning. It does not limit errors, because some of them replace the audit entry of a
// change.
type limited struct {
	slog.Handler
	repeats *repeats
}

// limitRepeats returns h with a limit on repeated warnings, whatever their attributes are.
func limitRepeats(h slog.Handler) slog.Handler {
	return limited{h, &repeats{out: slog.New(h), since: map[string]*repeated{}}}
}

// Handle implements slog.Handler.
func (l limited) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && l.repeats.hides(r.Message) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limited{l.Handler.WithAttrs(attrs), l.repeats}
}

// WithGroup implements slog.Handler.
func (l limited) WithGroup(name string) slog.Handler {
	return limited{l.Handler.WithGroup(name), l.repeats}
}

// repeats counts warnings for all loggers of a process.
type repeats struct {
	out *slog.Logger // without the limit

	mu    sync.Mutex
	since map[string]*repeated // by message
}

// repeated counts a message in an interval.
type repeated struct{ shown, hidden int }

// hides counts a warning and reports whether the log leaves it out.
func (r *repeats) hides(message string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.since[message]
	if m == nil {
		m = &repeated{}
		r.since[message] = m
		time.AfterFunc(repeatsInterval, func() { r.end(message) })
	}
	if m.shown < repeatsShown {
		m.shown++
		return false
	}
	m.hidden++
	return true
}

// end ends the interval of a message. The next one begins at once if there were too many.
func (r *repeats) end(message string) {
	r.mu.Lock()
	hidden := r.since[message].hidden
	if hidden == 0 {
		delete(r.since, message)
	} else {
		r.since[message] = &repeated{}
		time.AfterFunc(repeatsInterval, func() { r.end(message) })
	}
	r.mu.Unlock()
	if hidden > 0 {
		r.out.Warn(message, "suppressed", hidden, "interval_ms", repeatsInterval.Milliseconds())
	}
}
