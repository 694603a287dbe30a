package app

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// repeatsShown is the number of warnings with the same message that the log has in
	// repeatsInterval. It has the number of the others at the end of the interval.
	repeatsShown    = 10
	repeatsInterval = 10 * time.Second
)

// repeats is a hook that limits warnings with the same message: while a dependency is away, each
// turn and each request has the same to say. Errors all stay, as some of them replace a record.
type repeats struct {
	out zerolog.Logger // without this hook

	mu    sync.Mutex
	since map[string]*repeated // by message
}

// repeated counts a message in an interval.
type repeated struct{ shown, hidden int }

// Run implements zerolog.Hook.
func (r *repeats) Run(e *zerolog.Event, level zerolog.Level, message string) {
	if level != zerolog.WarnLevel || message == "" {
		return
	}
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
		return
	}
	m.hidden++
	e.Discard()
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
		r.out.Warn().Int("suppressed", hidden).Dur("interval_ms", repeatsInterval).Msg(message)
	}
}

// limitRepeats returns log with a limit on repeated warnings.
func limitRepeats(log zerolog.Logger) zerolog.Logger {
	return log.Hook(&repeats{out: log, since: map[string]*repeated{}})
}
