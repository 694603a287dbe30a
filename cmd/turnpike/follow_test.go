package main

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The summary line of a run excludes the run's idle time.
func TestSumWithoutIdleTime(t *testing.T) {
	t.Parallel()
	began := time.Now()
	run := api.Run{CreatedAt: state.At(began), FinishedAt: state.At(began.Add(time.Hour + 2*time.Second)), IdleMS: time.Hour.Milliseconds()}
	if got := sum(run); !strings.HasSuffix(got, " · 2s") {
		t.Errorf("sum = %q", got)
	}
}
