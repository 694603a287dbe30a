package degraded

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// bin is the directory of the programs that the tests run.
var bin = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "turnpike-degraded-")
	if err != nil {
		return "", err
	}
	return dir, rig.Build(context.Background(), dir, false, rig.ServerNATS, rig.Module+"cmd/gateway", rig.Module+"cmd/worker")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := bin(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// deploy starts a deployment for a test, and shows the logs if the test failed.
func deploy(t *testing.T, cfg rig.Config) *rig.Deployment {
	t.Helper()
	var err error
	if cfg.Bin, err = bin(); err != nil {
		t.Fatal(err)
	}
	cfg.Dir = t.TempDir()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s, err := rig.Deploy(ctx, cfg)
	t.Cleanup(func() {
		stop()
		if err := s.Wait(); err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			return
		}
		logs, _ := filepath.Glob(filepath.Join(cfg.Dir, "*.log"))
		for _, name := range logs {
			b, _ := os.ReadFile(name)
			t.Logf("%s:\n%s", filepath.Base(name), b[max(0, len(b)-2000):])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually polls until ok returns nil, with a limit that suits a busy machine.
func eventually(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	if err := rig.Until(t.Context(), 3*time.Minute, what, ok); err != nil {
		t.Fatal(err)
	}
}

// breakage is a dependency that fails until it is healed.
type breakage struct {
	name  string
	begin func(t *testing.T, s *rig.Deployment) (heal func() error, err error)

	// takes means that submissions are still accepted; ready, that the gateway is ready for a load balancer.
	takes, ready bool
}

// down kills a server and keeps it down.
func down(p *rig.Process) func() error {
	p.Kill(time.Hour)
	return func() error { p.Revive(); return nil }
}

func ofNATS(jetStream bool) []breakage {
	return []breakage{
		{"away", func(_ *testing.T, s *rig.Deployment) (func() error, error) { return down(&s.NATS.Process), nil }, !jetStream, !jetStream},
		{"silent", func(_ *testing.T, s *rig.Deployment) (func() error, error) {
			s.ToNATS.Hold()
			return func() error { s.ToNATS.Heal(); return nil }, nil
		}, !jetStream, !jetStream},
		{"full", func(t *testing.T, s *rig.Deployment) (func() error, error) {
			js, err := jetstream.New(s.Conn)
			if err != nil {
				return nil, err
			}
			return rig.FillStream(t.Context(), js)
		}, !jetStream, !jetStream},
		{"slow", func(_ *testing.T, s *rig.Deployment) (func() error, error) {
			s.ToNATS.Slow(30 * time.Millisecond)
			return func() error { s.ToNATS.Heal(); return nil }, nil
		}, true, true},
	}
}

func ofRedis() []breakage {
	return []breakage{
		{"away", func(_ *testing.T, s *rig.Deployment) (func() error, error) { return down(&s.Redis.Process), nil }, false, false},
		{"silent", func(_ *testing.T, s *rig.Deployment) (func() error, error) {
			s.ToRedis.Hold()
			return func() error { s.ToRedis.Heal(); return nil }, nil
		}, false, false},
		{"without memory", func(t *testing.T, s *rig.Deployment) (func() error, error) { return s.Redis.FillMemory(t.Context()) }, false, false},
		{"without disk", func(_ *testing.T, s *rig.Deployment) (func() error, error) { return s.Redis.FillDisk() }, false, false},
		{"slow", func(_ *testing.T, s *rig.Deployment) (func() error, error) {
			s.ToRedis.Slow(30 * time.Millisecond)
			return func() error { s.ToRedis.Heal(); return nil }, nil
		}, true, true},
	}
}

// residentLimit bounds the memory of our processes in these tests: an outage of a dependency must not cause
// unbounded buffering.
const residentLimit = 256 << 20

// Whatever happens to a dependency, a submission is accepted and completes, or is refused with Retry-After and
// can be repeated under its key. Readiness says which, and no process needs a restart (I1, I2).
func TestDegraded(t *testing.T) {
	t.Parallel()
	for _, deployment := range []struct {
		name      string
		jetStream bool
		breakages []breakage
	}{
		{"Redis", false, ofRedis()},
		{"NATS beside Redis", false, ofNATS(false)},
		{"NATS alone", true, ofNATS(true)},
	} {
		t.Run(deployment.name, func(t *testing.T) {
			t.Parallel()
			s := deploy(t, rig.Config{JetStream: deployment.jetStream, Workers: 2, Storage: 64 << 20, Env: []string{"TURNPIKE_LEASE=3s"}})
			u := newUsers(t, s)
			for _, b := range deployment.breakages {
				t.Run(b.name, func(t *testing.T) { u.endure(t, b) }) //nolint:paralleltest // one thing breaks at a time
			}
			for _, p := range s.Processes() {
				if n := p.Exits(); n > 0 {
					t.Errorf("%s has ended %d times", p.Name, n)
				}
				if peak := p.Peak(); peak > residentLimit {
					t.Errorf("%s needed %d MiB", p.Name, peak>>20)
				}
			}
		})
	}
}

// steps is an agent whose turns call the model and a tool of another process.
const steps = `
model: {provider: scripted, responses: [
  {tool_calls: [{name: echo, arguments: {n: 1}}, {name: echo, arguments: {n: 2}}], delay: 100ms},
  {tool_calls: [{name: echo, arguments: {n: 3}}]},
  {text: done, delay: 100ms}]}
tools: [{name: echo, kind: nats, idempotent: true, reuse: false, timeout: 2s}]
`

// users submit runs and record the answers.
type users struct {
	deployment *rig.Deployment

	mu       sync.Mutex
	keys     int
	runs     map[string]string // accepted, by key
	checked  int               // accepted in earlier waves
	refused  int
	nonsense []string // answers that neither accept nor refuse
}

func newUsers(t *testing.T, s *rig.Deployment) *users {
	t.Helper()
	stop, err := toolkit.Serve(s.Conn, rig.Prefix, toolkit.Tool{Name: "echo", Handler: func(_ context.Context, c toolkit.Call) (toolkit.Result, error) {
		return toolkit.Result{Content: string(c.Arguments)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	if _, err := s.Client.PutAgent(t.Context(), "steps", []byte(steps)); err != nil {
		t.Fatal(err)
	}
	return &users{deployment: s, runs: map[string]string{}}
}

// count returns the numbers of accepted and refused submissions so far.
func (u *users) count() (accepted, refused int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.checked + len(u.runs), u.refused
}

// submit repeats one submission under its key until it is accepted.
func (u *users) submit(ctx context.Context) {
	u.mu.Lock()
	u.keys++
	key := fmt.Sprint("key-", u.keys)
	u.mu.Unlock()
	for {
		id, refused, err := u.post(ctx, key)
		u.mu.Lock()
		switch {
		case err != nil:
			u.nonsense = append(u.nonsense, err.Error())
		case refused:
			u.refused++
		default:
			u.runs[key] = id
		}
		u.mu.Unlock()
		if err != nil || !refused || !rig.Pause(ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (u *users) post(ctx context.Context, key string) (id string, refused bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.deployment.URL+"/v1/runs", bytes.NewBufferString(`{"agent": "steps", "input": "go"}`))
	if err != nil {
		return "", false, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", false, err
	}
	switch {
	case resp.StatusCode == http.StatusAccepted:
		var run api.Run
		return run.ID, false, json.Unmarshal(body, &run)
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		return "", true, nil
	default:
		return "", false, fmt.Errorf("%s with %q: %s", resp.Status, resp.Header, body)
	}
}

// wave is the number of submissions that must be accepted or refused before a test continues.
const wave = 5

// endure breaks something while users submit, heals it, and checks the answers given in between.
func (u *users) endure(t *testing.T, b breakage) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var submitting sync.WaitGroup
	for range 4 {
		submitting.Go(func() {
			for ctx.Err() == nil {
				u.submit(t.Context())
				rig.Pause(ctx, 50*time.Millisecond)
			}
		})
	}
	before, refusedBefore := u.count()
	eventually(t, "runs are accepted", func(context.Context) error { return u.more(before, refusedBefore, wave, 0) })
	heal, err := b.begin(t, u.deployment)
	if err != nil {
		t.Fatal(err)
	}
	healed := false
	defer func() {
		if !healed {
			_ = heal() // for the tests that follow
		}
	}()
	during, refusedDuring := u.count()
	if b.takes {
		eventually(t, "runs are accepted meanwhile", func(context.Context) error { return u.more(during, refusedDuring, wave, 0) })
	} else {
		eventually(t, "submissions are refused", func(context.Context) error { return u.more(during, refusedDuring, 0, wave) })
	}
	eventually(t, "readiness tells", func(ctx context.Context) error {
		status, err := u.ready(ctx)
		if err == nil && (status == http.StatusOK) != b.ready {
			err = fmt.Errorf("it is %d", status)
		}
		return err
	})
	healed = true
	if err := heal(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gateway is ready again", u.deployment.Client.Ready)
	after, refusedAfter := u.count()
	eventually(t, "runs are accepted again", func(context.Context) error { return u.more(after, refusedAfter, wave, 0) })
	stop()
	submitting.Wait()
	u.awaitRest(t)
}

// more returns an error unless enough were accepted and refused since.
func (u *users) more(accepted, refused, wantAccepted, wantRefused int) error {
	a, r := u.count()
	if a-accepted < wantAccepted || r-refused < wantRefused {
		return fmt.Errorf("%d were accepted, %d refused", a-accepted, r-refused)
	}
	return nil
}

func (u *users) ready(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.deployment.URL+"/readyz", nil)
	if err != nil {
		return 0, err
	}
	// The check of a dependency may take longer than the attempt.
	resp, err := http.DefaultClient.Do(req.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// awaitRest waits until the accepted runs have completed, and checks that there are no others.
func (u *users) awaitRest(t *testing.T) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, said := range u.nonsense {
		t.Errorf("a submission returned %s", said)
	}
	if n := u.checked + len(u.runs); n != u.keys {
		t.Errorf("%d submissions, %d runs", u.keys, n)
	}
	for key, id := range u.runs {
		eventually(t, "what was accepted has ended", func(ctx context.Context) error {
			run, err := u.deployment.Client.Get(ctx, id)
			if err == nil && run.FinishedAt.IsZero() {
				err = fmt.Errorf("run %s of %s is %s in turn %d", id, key, run.Status, run.TurnCount)
			}
			if err == nil && run.Status != "completed" {
				t.Errorf("run %s of %s has ended %s: %v", id, key, *run.Reason, run.Error)
			}
			return err
		})
	}
	t.Logf("%d runs, %d refusals so far", u.keys, u.refused)
	u.checked += len(u.runs)
	u.runs, u.nonsense = map[string]string{}, nil
}
