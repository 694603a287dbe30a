package main

import (
	"strings"
	"testing"
)

// D10: a loop of a third party's runs on any worker, without a change elsewhere.
func TestPlanner(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1. Find a train", "next_turn  planned", "reflected  executed", "take the 9:02 from platform 4", "run.finished   completed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
