package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/demo"
)

// The demo starts its own program again as its workers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "demo-worker" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The demo kills a worker and prints that nothing was lost or done twice; otherwise Main returns an error.
func TestDemo(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := demo.Main(ctx, nil, out); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`☠ kill -9 worker-\d, in the middle of turn 2`, `■ completed`, `3 model calls, 2 tool effects, 0 repeated`} {
		if !regexp.MustCompile(want).Match(said) {
			t.Errorf("%s is missing in\n%s", want, said)
		}
	}
}
