package natsstore

import "github.com/turnpike-dev/turnpike/pkg/state"

// LogBytes is what the store keeps of logs in memory.
func (s *Store) LogBytes() map[state.RunID][]state.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[state.RunID][]state.Entry{}
	for id, l := range s.logs {
		held[id] = l.entries
	}
	return held
}

// Hold has the store keep so many bytes of logs.
func (s *Store) Hold(bytes int) { s.maxBytes = bytes }
