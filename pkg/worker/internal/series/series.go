// Package series bounds the number of metric series that users can cause.
package series

import (
	"sync"
	"unicode/utf8"
)

// Other is the value of a label whose own value has no place.
const Other = "other"

// maxLength bounds a value with a place, in bytes.
const maxLength = 200

// Places are a fixed number of places for values that users choose. A value that has a place
// keeps it as long as the process lives, as its series do. A tenant gets at most a quarter of
// the places that all others have left, so one tenant cannot take the places of the rest.
// All methods may be called by several goroutines at once.
type Places struct {
	limit int

	mu    sync.Mutex
	taken map[string]bool
	held  map[string]int // by tenant
}

// New returns limit free places.
func New(limit int) *Places {
	return &Places{limit: limit, taken: map[string]bool{}, held: map[string]int{}}
}

// Admit reports whether value may be a label, and takes a place for it if it has none yet. The
// place counts for the tenant that used the value first.
func (p *Places) Admit(tenant, value string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[value] {
		return true
	}
	own := p.held[tenant]
	others := len(p.taken) - own
	if len(p.taken) == p.limit || own >= (p.limit-others+3)/4 || len(value) > maxLength || !utf8.ValidString(value) {
		return false
	}
	p.taken[value] = true
	p.held[tenant]++
	return true
}
