package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// While the decision about an older copy of the store is pending, doctor reports that, and no lost runs: a newer copy
// may have them. A store that lacks no more marks than a failover loses does not wait.
func TestLostRunsWaitForTheDecision(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	cfg := deploy.Config{RedisURL: testbed.Redis(t), Prefix: "older-" + strings.ToLower(ulid.Make().String())}
	s, err := redisstore.Open(t.Context(), redisstore.Config{URL: cfg.RedisURL, Prefix: cfg.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: cfg.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if _, err := b.ReplaceMark(t.Context(), []byte(`{"count":100}`), 0); err != nil {
		t.Fatal(err)
	}
	lost := state.FirstIDAt(time.Now())
	about := func(mark int64) map[string]state.Finding {
		t.Helper()
		if _, _, err := s.RaiseMarks(t.Context(), 0, mark); err != nil {
			t.Fatal(err)
		}
		named, skipped := namedRuns{runs: []state.RunID{lost}, all: true}, skips{}
		all := map[string]state.Finding{}
		for _, f := range append(redisFindings(t.Context(), nc, cfg, "", named, &skipped), skipped.findings()...) {
			all[f.Name] = f
		}
		return all
	}
	all := about(100 - restore.Tolerance - 1)
	if f := all["store: restore"]; f.OK || !f.Broken || f.Fatal || !strings.HasPrefix(f.Detail, restore.Name) || !strings.Contains(f.Remedy, "turnpike restore accept") {
		t.Errorf("of an older copy: %+v", f)
	}
	if f, there := all["store: lost runs"]; there {
		t.Errorf("of an older copy: %+v", f)
	}
	if f := all["skipped"]; !strings.Contains(f.Detail, "1 checks: store: lost runs (") {
		t.Errorf("of an older copy: %+v", f)
	}
	all = about(100 - restore.Tolerance)
	if f := all["store: restore"]; !f.OK {
		t.Errorf("after a failover: %+v", f)
	}
	if f := all["store: lost runs"]; f.OK || f.Fatal || !strings.Contains(f.Detail, string(lost)) {
		t.Errorf("after a failover: %+v", f)
	}
	if f, there := all["skipped"]; there {
		t.Errorf("after a failover: %+v", f)
	}
}
