package deploy

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Opening is retried only if there was no answer. A refusal is returned at once, and so is the end of the
// process.
func TestPatiently(t *testing.T) {
	t.Parallel()
	silence := fmt.Errorf("open stream: %w", context.DeadlineExceeded)
	refused := errors.New("stream: retention is wrong")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx     context.Context //nolint:containedctx // of the case
		answers []error
		want    error
		tries   int
	}{
		"at once":           {t.Context(), []error{nil}, nil, 1},
		"after two":         {t.Context(), []error{silence, silence, nil}, nil, 3},
		"refused":           {t.Context(), []error{silence, refused}, refused, 2},
		"never":             {t.Context(), []error{silence, silence, silence, silence, silence, nil}, context.DeadlineExceeded, 5},
		"the process stops": {ended, []error{silence, nil}, context.DeadlineExceeded, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			_, err := patiently(c.ctx, func(context.Context) (struct{}, error) {
				tries++
				return struct{}{}, c.answers[tries-1]
			})
			if !errors.Is(err, c.want) || tries != c.tries {
				t.Errorf("%v after %d attempts, want %v after %d", err, tries, c.want, c.tries)
			}
		})
	}
}
