package natsstore

import (
	"io"
	"log/slog"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// LogBytes returns the cached bytes of each log.
func (s *Store) LogBytes() map[state.RunID][]state.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[state.RunID][]state.Entry{}
	for id, l := range s.logs {
		held[id] = l.entries
	}
	return held
}

// Hold sets the cache limit for logs in bytes.
func (s *Store) Hold(bytes int) { s.maxBytes = bytes }

// Indexed returns a store that only has an index.
func Indexed(log io.Writer) *Store {
	return &Store{cfg: Config{Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, index: map[state.RunID]version{}, active: record.ActiveRuns{}, lists: lists{}, schedule: newSchedule()}
}

// Learn adds a run to the index, as a message with a sequence number does.
func (s *Store) Learn(st state.State, seq uint64) {
	s.learn(st.ID, version{record.Record{Header: st, Status: st.Status}, seq, 0})
}

// LearnIndexed is Learn for a run with metadata that its tenant indexes.
func (s *Store) LearnIndexed(n state.NewRun, seq uint64) {
	s.learn(n.State.ID, version{record.Record{Header: n.State, Status: n.State.Status, Indexed: n.IndexNames()}, seq, 0})
}

// Forget removes a run from the index.
func (s *Store) Forget(id state.RunID) { s.forget(id) }

// HoldLog keeps the log of a run, as a reader of it does.
func (s *Store) HoldLog(id state.RunID, log []state.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(id, cachedLog{log, 1, 1})
}

// CheckRuns returns doctor's finding about the number of runs.
func (s *Store) CheckRuns() state.Finding { return s.checkRuns() }

// StopFeed limits the index to the writes and reads of this process.
func (s *Store) StopFeed() {
	s.feed.Stop()
	<-s.feed.Closed()
}

// StreamName returns the name of the stream of runs and timers.
func StreamName(prefix string) string { return streamName(prefix, "STATE") }
