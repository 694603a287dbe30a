package record

import (
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// FirstTimers finds the first Limit timers, by name, whose names follow After, among many in any order. It
// never holds more than Limit.
type FirstTimers struct {
	After string
	Limit int
	Found []state.Timer // by name
}

// Add adds a timer to Found if it is among the first, and removes the last one if Found is full. Limit must
// be more than 0.
func (f *FirstTimers) Add(t state.Timer) {
	if t.Name <= f.After || len(f.Found) == f.Limit && t.Name > f.Found[f.Limit-1].Name {
		return
	}
	at, _ := slices.BinarySearchFunc(f.Found, t.Name, func(have state.Timer, name string) int { return strings.Compare(have.Name, name) })
	if len(f.Found) == f.Limit {
		f.Found = f.Found[:f.Limit-1]
	}
	f.Found = slices.Insert(f.Found, at, t)
}
