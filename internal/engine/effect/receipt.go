package effect

import (
	"sync"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
)

// responseMemory is the memory of one response while it arrives; most responses are too short to need any. It is safe
// for concurrent use: the code of a provider that the worker has stopped waiting for may still call grow.
type responseMemory struct {
	of     *admission.Answers // nil: no budget
	tenant string

	mu       sync.Mutex
	reserved *admission.Reservation
	over     bool
}

// grow reserves n bytes more if they are free now, and reports whether they were.
func (m *responseMemory) grow(n int64) bool {
	if m.of == nil {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return false
	}
	if m.reserved == nil {
		m.reserved = m.of.Empty(m.tenant)
	}
	return m.reserved.Grow(n)
}

func (m *responseMemory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	m.reserved.Release()
}
