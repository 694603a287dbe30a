package docs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// root is the repository.
const root = "../.."

// binaries are the commands of this repository that were built.
var binaries = struct {
	sync.Mutex
	dir  string
	done map[string]func() error // by package
}{done: map[string]func() error{}}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "turnpike-docs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries.dir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build compiles a command once for all tests, and returns its path.
func build(t *testing.T, pkg string) string {
	t.Helper()
	binaries.Lock()
	dir := filepath.Join(binaries.dir, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "_"))
	once := binaries.done[pkg]
	if once == nil {
		once = sync.OnceValue(func() error {
			return rig.Build(context.Background(), dir, false, strings.Replace(pkg, "./", rig.Module, 1))
		})
		binaries.done[pkg] = once
	}
	binaries.Unlock()
	if err := once(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, path.Base(strings.TrimSuffix(pkg, "/v2")))
}

// session is a shell in a copy of the repository's root.
type session struct {
	dir    string
	bin    string // shims, first on the PATH
	env    []string
	client *api.Client

	mu    sync.Mutex
	ports map[string]string // ports on pages, and those in use here
}

// address matches loopback addresses with ports.
var address = regexp.MustCompile(`\b(?:127\.0\.0\.1|localhost):\d{4,5}\b`)

// local replaces the ports in text by those of the session.
func (s *session) local(t *testing.T, text string) string {
	t.Helper()
	return address.ReplaceAllStringFunc(text, func(a string) string {
		_, port, _ := strings.Cut(a, ":")
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ports[port] == "" {
			s.ports[port] = freePort(t)
		}
		return "127.0.0.1:" + s.ports[port]
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// newSession prepares a session for commands, without a deployment.
func newSession(t *testing.T, commands string) *session {
	t.Helper()
	s := &session{dir: t.TempDir(), bin: t.TempDir(), ports: map[string]string{}}
	s.copyRoot(t)
	s.shims(t, commands)
	gateway := s.local(t, "127.0.0.1:7070")
	s.client = api.New("http://" + gateway)
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		// An API key of the machine must not make a page pass that requires one.
		if !strings.HasPrefix(name, "TURNPIKE_") && !strings.HasSuffix(name, "_API_KEY") && name != "PATH" && name != "PWD" {
			s.env = append(s.env, e)
		}
	}
	s.env = append(s.env,
		"PATH="+s.bin+":"+os.Getenv("PATH"), "PWD="+s.dir, "PYTHONDONTWRITEBYTECODE=1",
		"TURNPIKE_ADDR="+gateway, "TURNPIKE_URL=http://"+gateway,
	)
	return s
}

// copyRoot links to the files in the repository's root. Examples are copied, because their ports change.
func (s *session) copyRoot(t *testing.T) {
	t.Helper()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(here)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.Name() == "examples" {
			continue
		}
		if err := os.Symlink(filepath.Join(here, e.Name()), filepath.Join(s.dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	err = filepath.WalkDir(filepath.Join(here, "examples"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(here, path)
		if err != nil {
			return err
		}
		to := filepath.Join(s.dir, name)
		switch {
		case d.Name() == "node_modules":
			if err := os.Symlink(path, to); err != nil {
				return err
			}
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case slices.Contains([]string{".yaml", ".py", ".sh", ".json", ".md"}, filepath.Ext(path)):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(to, []byte(s.local(t, string(text))), 0o644)
		default:
			return os.Symlink(path, to)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goRun matches the commands of this repository that a text runs.
var goRun = regexp.MustCompile(`\bgo run (\./[\w./-]+)`)

// shims puts turnpike, go and make before those of the machine.
func (s *session) shims(t *testing.T, commands string) {
	t.Helper()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	var cases strings.Builder
	for _, m := range goRun.FindAllStringSubmatch(commands, -1) {
		if m[1] != "./cmd/turnpike" {
			fmt.Fprintf(&cases, "  %q) shift 2; exec %q \"$@\" ;;\n", "run "+m[1], build(t, m[1]))
		}
	}
	for name, script := range map[string]string{
		"turnpike": fmt.Sprintf(`#!/bin/bash
real=%q
case $1 in
approve | deny | answer)
  for i in $(seq 1200); do
    "$real" -o json show "$2" | grep -q '"status": "waiting"' && break
    sleep 0.05
  done ;;
dev | worker | gateway) exec "$real" "$@" ;;
mock-model) case "$*" in *--addr*) exec "$real" "$@" ;; *) exec "$real" "$@" --addr %q ;; esac ;;
esac
"$real" "$@"
code=$?
case $code in 3 | 4 | 5 | 6) exit 0 ;; *) exit $code ;; esac
`, build(t, "./cmd/turnpike"), s.local(t, "127.0.0.1:7080")),
		"go": fmt.Sprintf(`#!/bin/bash
case "$1 $2" in
  "run ./cmd/turnpike") shift 2; exec turnpike "$@" ;;
  "build -o") exec %[2]q -C %[3]q build -o "$PWD/$3" "${@:4}" ;;
%[1]s  "test "*) packages=(); for a in "$@"; do case $a in ./*) packages+=("$a") ;; esac; done; exec %[2]q -C %[3]q list "${packages[@]}" ;;
esac
exec %[2]q -C %[3]q "$@"
`, cases.String(), goTool, here),
		"make": `#!/bin/bash
PATH=${PATH#*:} exec make --dry-run "$@" > /dev/null
`,
	} {
		if err := os.WriteFile(filepath.Join(s.bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// prelude defines what a session's shell needs in addition to the commands.
const prelude = `set -e
up() { # PID LOG: returns when what was started in the background says something, or has had ten seconds
  for i in $(seq 200); do
    kill -0 "$1" 2> /dev/null || { echo "it ended:"; cat "$2"; return 1; }
    [ -s "$2" ] && return
    sleep 0.05
  done
}
ready() { # LOG: returns when the deployment is
  for i in $(seq 1200); do
    curl -sf -o /dev/null "$TURNPIKE_URL/readyz" && return
    sleep 0.05
  done
  echo "turnpike dev is not ready:"; cat "$1"; return 1
}
`

var (
	devLine    = regexp.MustCompile(`(?m)^.*\b(?:turnpike|go run \./cmd/turnpike) dev\b.*$`)
	background = regexp.MustCompile(`(?m)^(.*[^&>])&[ \t]*(\w+=\$!)?[ \t]*(#.*)?$`)
)

// script makes one script of blocks, each with a name for errors.
func (s *session) script(t *testing.T, blocks []block) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(prelude)
	logs, n := t.TempDir(), 0
	for _, block := range blocks {
		text := background.ReplaceAllStringFunc(s.local(t, block.text), func(line string) string {
			n++
			m := background.FindStringSubmatch(line)
			log := filepath.Join(logs, fmt.Sprint(n))
			wait := fmt.Sprintf("up $! %q", log)
			if devLine.MatchString(line) {
				wait = fmt.Sprintf("ready %q", log)
			}
			if strings.Contains(m[1], ">") {
				return line // the text of the page is unchanged, and the shell knows how to wait
			}
			return fmt.Sprintf("%s > %q 2>&1 & %s\n%s", m[1], log, m[2], wait)
		})
		fmt.Fprintf(&b, "echo %q\n%s\n", "── "+block.at, strings.TrimRight(text, "\n"))
	}
	return b.String()
}

// run runs blocks in a shell, and returns the output.
func (s *session) run(t *testing.T, blocks []block) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.sh")
	if err := os.WriteFile(path, []byte(s.script(t, blocks)), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // for a page that hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", path)
	cmd.Dir, cmd.Env = s.dir, s.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := s.start(t, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // something still runs in the background
		t.Fatalf("the session ended with %v, after:\n%s", err, out.String())
	}
	return out.String()
}

// start starts a command in its own process group, which ends with the test.
func (s *session) start(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = end, time.Second
	err := cmd.Start()
	if err == nil {
		t.Cleanup(func() { _ = end() }) // it may have ended
	}
	return err
}

// deploy starts a deployment for the session, as examples/agents/README.md says, and returns when it is ready.
func (s *session) deploy(t *testing.T) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), build(t, "./cmd/turnpike"), "dev", "--allow-commands")
	cmd.Dir, cmd.Env = s.dir, append(slices.Clone(s.env), "TURNPIKE_HTTP_ALLOW=127.0.0.0/8", testbed.ConfinementSetting(t))
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := s.start(t, cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process
	t.Cleanup(func() {
		<-ended // its context has ended
		if t.Failed() {
			t.Logf("turnpike dev printed:\n%s", log.String())
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.client.Ready(t.Context()) != nil {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("turnpike dev ended: %v\n%s", err, log.String())
		case <-tick.C:
		}
	}
}
