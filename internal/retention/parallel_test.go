package retention_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// gate holds all that reach it until it opens, and counts them.
type gate struct {
	held atomic.Int64
	open chan struct{}
}

func (g *gate) pass(state.RunID) {
	g.held.Add(1)
	<-g.open
}

// Deletions wait for the store many at a time: the trees of a pass, its pages, and the runs of one tree. One at a time
// would not keep up with the runs that a busy deployment makes.
func TestDeletionsInParallel(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"seal", "remove", "forget"} {
		for name, c := range map[string]struct {
			trees, below int
			want         int64
		}{"trees": {20, 0, 20}, "pages": {201, 0, 65}, "a tree": {1, 20, 8}} {
			t.Run(step+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					d := newDeployment(t)
					for range c.trees {
						root := d.run("a", nil, state.EndCompleted)
						for range c.below {
							d.run("b", &state.Parent{RunID: root, CallID: "c1", Depth: 1}, state.EndCompleted)
						}
					}
					time.Sleep(time.Hour)
					g := &gate{open: make(chan struct{})}
					b := &between{Store: d.store, Intake: d.bus}
					hold := func(id state.RunID) {
						if s, err := d.store.Load(t.Context(), id); c.below == 0 || err == nil && s.Parent != nil {
							g.pass(id) // the root of a tree is sealed first and deleted last, by itself
						}
					}
					switch step {
					case "seal":
						b.seal = hold
					case "remove":
						b.remove = hold
					default:
						b.forget = hold
					}
					cleaner := retention.New(b, b, retention.Config{Keep: agent.Retention{Completed: agent.Period(10 * time.Minute)}})
					go cleaner.Run(t.Context())
					synctest.Wait()
					if held := g.held.Load(); held < c.want {
						t.Errorf("%d deletions are in progress at once, want at least %d", held, c.want)
					}
					close(g.open)
					synctest.Wait()
					if s := cleaner.Stats(); s.Deleted < int64(c.trees) {
						t.Errorf("after the pass: %+v", s)
					}
				})
			})
		}
	}
}
