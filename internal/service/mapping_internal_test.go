package service

import (
	"math"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The problem of a delivery names an expression only if there is one.
func TestUnmapped(t *testing.T) {
	t.Parallel()
	for want, run := range map[string]api.HookRun{
		"hook h: the whole event cannot be the input (json: unsupported value: +Inf): set run.input to an expression": {Agent: "a"},
		"hook h: an expression of run failed (run.input: no such key: x":                                              {Agent: "a", Input: "event.x"},
	} {
		m, err := compileMapping(sourceHook, "", &run, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := delivery{name: "h", mapping: m, Event: hookin.Event{Body: map[string]any{"n": math.Inf(1)}}}
		d.values = evaluationOf(d.Event)
		_, err = m.request(d)
		if got := ProblemOf(d.unmapped("run", err)).Detail; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, ", then deliver again from the sender") {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
