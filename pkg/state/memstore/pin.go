package memstore

import (
	"context"
	"slices"
)

// Pin implements state.Agents.
func (s *Store) Pin(_ context.Context, key string, value []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pins[key]) == 0 && len(value) > 0 {
		s.pins[key] = slices.Clone(value)
	}
	return s.pins[key], nil
}
