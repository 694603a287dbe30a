package monitor_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/deploy/monitor"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
)

// refusing is a bus that stores no dead letters.
type refusing struct{ *membus.Bus }

func (refusing) DeadLetter(context.Context, bus.DeadLetter) error { return errAway }

// letters returns the dead letters that a process counts, by kind.
func letters(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "turnpike_dead_letters_total" {
				counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return counted
}

// The dead letters that a process stores are counted by kind; one that is not stored is not counted.
func TestDeadLettersAreCounted(t *testing.T) {
	t.Parallel()
	m, r := meter(t)
	stored := membus.New()
	counting := monitor.Count(stored, m)
	for _, d := range []bus.DeadLetter{
		{Kind: bus.DeadTrigger, Key: "t1", Message: "m1"}, {Kind: bus.DeadTrigger, Key: "t1", Message: "m2"}, {Kind: bus.DeadWebhook, Message: "e1"},
	} {
		if err := counting.DeadLetter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := monitor.Count(refusing{stored}, m).DeadLetter(t.Context(), bus.DeadLetter{Kind: bus.DeadWebhook, Message: "e2"}); !errors.Is(err, errAway) {
		t.Errorf("a letter that was not stored: %v", err)
	}
	want := map[string]float64{string(bus.DeadTrigger): 2, string(bus.DeadWebhook): 1}
	if got := letters(t, r); !maps.Equal(got, want) {
		t.Errorf("dead letters: %v, want %v", got, want)
	}
}
