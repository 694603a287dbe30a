package scale

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// bin is the directory of what the tests run.
var bin = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "turnpike-scale-")
	if err != nil {
		return "", err
	}
	return dir, build(context.Background(), dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := bin(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// small is the short form of each bar.
var small = Sizes{
	Runs: 100, Steady: time.Second, Queued: 500, Slots: 10, Takes: 100 * time.Millisecond, Watch: time.Minute,
	Listed: 2000, ListedJetStream: 1000, Tree: 200, Grow: 40, Children: 64, Old: 300, Queue: 8 << 20, Tenants: 10, Flood: 20, Greedy: 3,
}

// I1, I2, I4: whatever many runs at once go through, none is lost, no effect comes twice, and
// nobody who lives is taken for dead. The short form has the bars that end soon.
func TestScale(t *testing.T) {
	t.Parallel()
	programs, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bars() {
		if testing.Short() && b.name != "sleep" && b.name != "bomb" || b.name == "trees" {
			continue // trees are held to a time alone, which make scale measures
		}
		if strings.HasPrefix(b.name, "retention-") {
			continue // each waits for a minute until its runs are old, as the first does
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			report, err := Run(t.Context(), Config{Only: []string{b.name}, Sizes: small, Dir: t.TempDir(), Bin: programs}, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			if report.Failed() {
				t.Error(report)
			}
		})
	}
}
