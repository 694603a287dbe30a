package agent_test

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
)

func TestRetention(t *testing.T) {
	t.Parallel()
	const day = agent.Period(24 * time.Hour)
	for text, want := range map[string]agent.Retention{
		"":                              {},
		"completed: 30d":                {Completed: 30 * day},
		"{completed: 30d, failed: 90d}": {Completed: 30 * day, Failed: 90 * day},
		" failed: 1.5d , events: 72h ":  {Failed: day + day/2, Events: 3 * day},
	} {
		if got, err := agent.ParseRetention(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"30d", "completed=30d", "completed: soon", "completed: 5s", "done: 1d", "completed: -1d", "completed: NaNd", "completed: 1e300d", "completed: 1d, completed: 2d"} {
		if got, err := agent.ParseRetention(text); err == nil {
			t.Errorf("%q is %+v, want an error", text, got)
		}
	}
	a, b := agent.Retention{Completed: day, Events: 2 * day}, agent.Retention{Completed: 2 * day, Failed: day}
	if got := a.Tighter(b); got != b.Tighter(a) || got != (agent.Retention{Completed: day, Failed: day, Events: 2 * day}) {
		t.Errorf("the shorter of both is %+v", got)
	}
	if text := (30 * day).String() + " " + agent.Period(90*time.Minute).String(); text != "30d 1h30m0s" {
		t.Error(text)
	}
}
