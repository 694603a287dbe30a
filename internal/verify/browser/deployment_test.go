//go:build browser

package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

var built string

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "turnpike-browser-")
	if err != nil {
		return "", err
	}
	built = dir
	return dir, rig.Build(context.Background(), dir, false, rig.Module+"cmd/gateway", rig.Module+"cmd/worker", rig.Module+"cmd/turnpike")
})

func TestMain(m *testing.M) {
	code := m.Run()
	quit()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// deployment is NATS, a gateway and workers as processes, with the tools refund and convert.
type deployment struct {
	t       *testing.T
	url     string
	client  *api.Client
	workers map[string]*exec.Cmd

	mu      sync.Mutex
	refunds []refund
}

type refund struct {
	Order  string  `json:"order"`
	Amount float64 `json:"amount"`
}

type length struct {
	Value float64 `json:"value"`
}

// start starts the processes only.
func start(t *testing.T, env ...string) (*deployment, string) {
	t.Helper()
	server, err := devserver.Start(devserver.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	port, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	s := &deployment{t: t, url: "http://" + addr, workers: map[string]*exec.Cmd{}}
	s.client = api.New(s.url)
	env = append(env, "TURNPIKE_NATS_URL="+server.URL(), "TURNPIKE_ADDR="+addr)
	s.spawn("gateway", env)
	eventually(t, "the gateway is ready", func() error {
		resp, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	for _, id := range []string{"worker-1", "worker-2"} {
		s.workers[id] = s.spawn("worker", env, "--id", id)
	}
	return s, server.URL()
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	s, nats := start(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- toolkit.Run(ctx, toolkit.Config{URL: nats},
			toolkit.Func("refund", "Pays money back.", func(_ context.Context, _ toolkit.Call, r refund) (string, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.refunds = append(s.refunds, r)
				return fmt.Sprintf("Paid %g back.", r.Amount), nil
			}),
			toolkit.Func("convert", "Converts kilometres to metres.", func(_ context.Context, _ toolkit.Call, l length) (map[string]any, error) {
				return map[string]any{"metres": l.Value * 1000}, nil
			}))
	}()
	t.Cleanup(func() {
		stop()
		<-served
	})
	files, err := filepath.Glob("testdata/agents/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("agents: %v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := f[len("testdata/agents/") : len(f)-len(".yaml")]
		if _, err := s.client.PutAgent(t.Context(), name, text); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// spawn starts a process that ends with the test, and shows its output if the test failed.
func (s *deployment) spawn(name string, env []string, args ...string) *exec.Cmd {
	s.t.Helper()
	dir, err := build()
	if err != nil {
		s.t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(dir, name), args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TURNPIKE_") }), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%s %v:\n%s", name, args, out.String()[max(0, out.Len()-3000):])
		}
	})
	return cmd
}

func (s *deployment) submit(agent, input string, metadata ...string) string {
	s.t.Helper()
	req := api.SubmitRequest{Agent: agent, Input: []byte(fmt.Sprintf("%q", input)), Stream: "deltas", Metadata: map[string]string{}}
	for i := 0; i+1 < len(metadata); i += 2 {
		req.Metadata[metadata[i]] = metadata[i+1]
	}
	run, err := s.client.Submit(s.t.Context(), req, "")
	if err != nil {
		s.t.Fatal(err)
	}
	return run.ID
}

// reaches waits until the run has one of the statuses, and returns it.
func (s *deployment) reaches(id string, statuses ...string) api.Run {
	s.t.Helper()
	var run api.Run
	eventually(s.t, fmt.Sprintf("run %s is %v", id, statuses), func() error {
		var err error
		if run, err = s.client.Get(s.t.Context(), id); err != nil {
			return err
		}
		for _, want := range statuses {
			if run.Status == want {
				return nil
			}
		}
		return fmt.Errorf("it is %s", run.Status)
	})
	return run
}

func (s *deployment) paid() []refund {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]refund{}, s.refunds...)
}

// eventually polls until ok returns nil.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	testbed.Eventually(t, what, ok)
}

// firstKey creates the first admin key, as an operator who installs a deployment does.
func firstKey(t *testing.T, address string) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), dir+"/turnpike", "keys", "create", "--bootstrap")
	cmd.Env = append(os.Environ(), "TURNPIKE_NATS_URL="+address)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
