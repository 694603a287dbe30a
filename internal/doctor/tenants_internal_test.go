package doctor

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// slowStore answers after a second, and counts its calls.
type slowStore struct {
	state.Store

	mu                  sync.Mutex
	asked, atOnce, most int
	pages               int
}

func (s *slowStore) wait() {
	s.mu.Lock()
	s.asked++
	s.atOnce++
	s.most = max(s.most, s.atOnce)
	s.mu.Unlock()
	time.Sleep(time.Second) // on the clock of the synctest bubble
	s.mu.Lock()
	s.atOnce--
	s.mu.Unlock()
}

func (s *slowStore) AgentNames(ctx context.Context, tenant string) ([]string, error) {
	s.wait()
	return s.Store.AgentNames(ctx, tenant)
}

func (s *slowStore) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	s.wait()
	return s.Store.Agent(ctx, tenant, name, version)
}

func (s *slowStore) Load(ctx context.Context, id state.RunID) (state.State, error) {
	s.wait()
	return s.Store.Load(ctx, id)
}

func (s *slowStore) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	s.pages++
	return s.Store.List(ctx, f)
}

// Doctor reads the agents of a bounded number of tenants at once, each agent once, and reports in the order of tenants.
func TestDoctorReadsTenantsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: memstore.New(memstore.Config{})}
		const tenants = 100
		var want []string
		for i := range tenants {
			tenant := fmt.Sprintf("t%03d", i)
			if err := s.PutDocument(t.Context(), state.TenantDocument, tenant, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
			definition := `{"name":"a","model":{"provider":"scripted"},"tools":[{"name":"t","kind":"agent","agent":"nobody"}]}`
			if _, err := s.PutAgent(t.Context(), tenant, "a", []byte(definition), false); err != nil {
				t.Fatal(err)
			}
			want = append(want, "agent: nobody of tenant "+tenant)
		}
		var got []string
		for _, f := range agentFindings(t.Context(), nil, deploy.Config{Prefix: "turnpike"}, "", s) {
			got = append(got, f.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("findings:\n%s", diff)
		}
		if s.most != atOnce {
			t.Errorf("%d reads at once, want %d", s.most, atOnce)
		}
		if most := 2*(tenants+1) + 2*tenants; s.asked != most { // names twice, the agent, and the agent that is not there
			t.Errorf("%d reads, want %d", s.asked, most)
		}
	})
}

// Doctor reads the runs of turn messages at once, and the newest runs in one page for each question.
func TestDoctorReadsRunsInFewRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: memstore.New(memstore.Config{})}
		named := namedRuns{all: true}
		for i := range 50 {
			named.runs = append(named.runs, state.RunID(fmt.Sprintf("01J0000000000000000000%04d", i)))
		}
		f := lostRuns(t.Context(), named, s)
		if want := fmt.Sprintf("the store lacks 50 runs: %s (of a turn message), %s (of a turn message)", named.runs[0], named.runs[1]); f.OK || len(f.Detail) < len(want) || f.Detail[:len(want)] != want {
			t.Errorf("%+v, want %s", f, want)
		}
		if s.most != atOnce || s.pages != 3 {
			t.Errorf("%d reads at once and %d pages, want %d and 3", s.most, s.pages, atOnce)
		}
	})
}
