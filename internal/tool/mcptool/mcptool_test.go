package mcptool

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const sdk = "github.com/modelcontextprotocol/go-sdk/"

// built holds the SDK's own servers.
var built = struct {
	sync.Mutex
	dir   string
	paths map[string]string
}{paths: map[string]string{}}

func TestMain(m *testing.M) {
	if os.Getenv(scenario) != "" {
		if err := conformanceClient(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if key := os.Getenv(parrotMode); key != "" {
		if err := testbed.ServeParrot(key); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	if os.Getenv(serverMode) != "" {
		serveOnStdio()
		return
	}
	dir, err := os.MkdirTemp("", "mcptool")
	if err != nil {
		panic(err)
	}
	built.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build returns the program of one of the SDK's servers.
func build(t *testing.T, pkg string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.paths[pkg]; path != "" {
		return path
	}
	path := filepath.Join(built.dir, strings.ReplaceAll(pkg, "/", "-"))
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, sdk+pkg).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	built.paths[pkg] = path
	return path
}

func caller(t *testing.T, cfg Config) *Caller {
	t.Helper()
	if cfg.Commands == nil {
		cfg.Commands = []string{"*"}
	}
	if cfg.Confinement == nil {
		cfg.Confinement = testbed.Confinement(t, confine.Config{})
	}
	guard, err := guard.New([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	c := New(guard, cfg)
	t.Cleanup(c.Close)
	return c
}

// asTheyAre returns a confinement that starts programs unconfined, for tests that observe their processes from
// outside.
func asTheyAre(t *testing.T) *confine.Confinement {
	t.Helper()
	return testbed.Confinement(t, confine.Config{Mode: confine.Off})
}

func noSecrets(string, string) (string, error) { return "", nil }

func program(t *testing.T, pkg string) Server { return Server{Command: []string{build(t, pkg)}} }

// ready returns a tool after pinning what its server currently lists.
func ready(t *testing.T, c *Caller, s Server, name string) tool.Tool {
	t.Helper()
	l, err := c.List(t.Context(), "", s, noSecrets)
	if err != nil {
		t.Fatal(err)
	}
	return c.Tool(s, name, nil, l, noSecrets)
}

func try(t *testing.T, impl tool.Tool, c tool.Call) tool.Result {
	t.Helper()
	if c.Arguments == nil {
		c.Arguments = json.RawMessage(`{}`)
	}
	if c.ID == "" {
		c.ID = "c1"
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := impl.Call(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestServersOfTheSDK(t *testing.T) {
	t.Parallel()
	c := caller(t, Config{})
	s := program(t, "examples/server/everything")
	for name, want := range map[string]string{
		"greet":                             "Hi you",
		"greet (structured)":                `{"message":"Hi you"}`,
		"greet (content with ResourceLink)": "[resource greeting: data:text/plain,Hi%20you, text/plain]",
	} {
		r := try(t, ready(t, c, s, name), tool.Call{Arguments: json.RawMessage(`{"name":"you"}`)})
		if r.IsError || r.Content != want {
			t.Errorf("%s = %+v, want %q", name, r, want)
		}
	}
	if r := try(t, ready(t, c, s, "greet"), tool.Call{Arguments: json.RawMessage(`{"name":1}`)}); !r.IsError || !strings.Contains(r.Content, "name") {
		t.Errorf("wrong arguments = %+v", r)
	}
	if r := try(t, ready(t, c, s, "sample"), tool.Call{}); !r.IsError {
		t.Errorf("sampling = %+v, want an error", r)
	}
}

// A server's question waits in the checkpoint. Each continuation uses another caller, like another worker (D5).
func TestMultiRoundTrip(t *testing.T) {
	t.Parallel()
	s := program(t, "conformance/everything-server")
	var asked []string
	c := tool.Call{}
	for _, answer := range []string{"Ada", `{"color":"green"}`, ""} {
		r := try(t, ready(t, caller(t, Config{}), s, "test_input_required_result_multi_round"), c)
		if answer == "" {
			if r.IsError || r.Content != "Multi-round complete: Ada likes green" {
				t.Errorf("result = %+v", r)
			}
			break
		}
		if r.Ask == nil {
			t.Fatalf("no question but %+v", r)
		}
		asked = append(asked, r.Ask.Question)
		c.Resume = &tool.Resume{State: r.Ask.State, Answer: answer}
	}
	want := []string{
		"Step 1: What is your name?\nAnswer with name (string)\nor with decline or cancel.",
		"Step 2: What is your favorite color?\nAnswer with color (string)\nor with decline or cancel.",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("questions:\n%s", diff)
	}
}

func TestAnswersOfTheWrongShapeAreAskedForAgain(t *testing.T) {
	t.Parallel()
	impl := ready(t, caller(t, Config{}), program(t, "conformance/everything-server"), "test_input_required_result_request_state")
	r := try(t, impl, tool.Call{})
	if r.Ask == nil {
		t.Fatalf("no question but %+v", r)
	}
	r = try(t, impl, tool.Call{Resume: &tool.Resume{State: r.Ask.State, Answer: "perhaps"}})
	if r.Ask == nil || !strings.HasPrefix(r.Ask.Question, "That answer is not valid: the answer is neither yes nor no: answer with one of them.\nPlease confirm") {
		t.Fatalf("question = %+v", r.Ask)
	}
	if r = try(t, impl, tool.Call{Resume: &tool.Resume{State: r.Ask.State, Answer: "yes"}}); !strings.HasPrefix(r.Content, "state-ok") {
		t.Errorf("result = %+v", r)
	}
}
