package service_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run that is damaged in the store is no outage of the store.
func TestProblemOfDamagedRun(t *testing.T) {
	t.Parallel()
	_, malformed := state.DecodeState("\xff")
	_, empty := state.DecodeState("")
	_, entry := state.DecodeEntry(1, "\xff")
	for _, err := range []error{malformed, empty, entry} {
		if p := service.ProblemOf(fmt.Errorf("load run: %w", err)); p.Status != 500 || p.Code != api.CodeInternal || p.RetryAfter != 0 {
			t.Errorf("the problem of %v is %d %s", err, p.Status, p.Code)
		}
	}
	if p := service.ProblemOf(errors.New("connection refused")); p.Status != 503 || p.RetryAfter == 0 {
		t.Errorf("the problem of an outage is %d %s", p.Status, p.Code)
	}
}

// A gateway that shuts down does not say that the store failed, or that the outcome of the request is unknown.
func TestProblemOfStoppedGateway(t *testing.T) {
	t.Parallel()
	p := service.ProblemOf(fmt.Errorf("read log: %w", service.ErrStopped))
	if p.Status != 503 || p.RetryAfter == 0 || !strings.Contains(p.Detail, "this gateway is shutting down") || !strings.Contains(p.Detail, "retry") || strings.Contains(p.Detail, "store") {
		t.Errorf("the problem of a gateway that shuts down is %d %s: %s", p.Status, p.Code, p.Detail)
	}
}
