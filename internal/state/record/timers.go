package record

import (
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// FirstTimers finds the first timers behind a name among many in any order. It never holds more than it
// returns.
type FirstTimers struct {
	After string
	Limit int
	Found []state.Timer // by name
}

// Add looks at a timer.
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
