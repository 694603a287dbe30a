//go:build clients

package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

const root = "../../../"

// language describes how to run the programs of one language.
type language struct {
	name  string
	ready func() error // installs the client, once

	// command returns the command of a test program, such as case_tools.
	command func(program string) []string
	env     func() []string
}

var languages = []language{
	{name: "Go", ready: func() error { _, err := goTools(); return err }, command: goCommand, env: func() []string { return nil }},
	{name: "Python", ready: func() error { _, err := python(); return err }, command: pythonCommand, env: pythonEnv},
	{name: "TypeScript", ready: func() error { _, err := typeScript(); return err }, command: typeScriptCommand, env: func() []string { return nil }},
}

// clients returns the languages that also have a client of the HTTP API.
func clients() []language { return languages[1:] }

var scratch = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "turnpike-clients-") })

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := scratch(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// compiled returns a function that compiles commands once, and returns the directory.
func compiled(commands ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := scratch()
		if err != nil {
			return "", err
		}
		return dir, rig.Build(context.Background(), dir, false, commands...)
	})
}

var (
	goTools  = compiled(rig.Module + "internal/verify/clients/gotools")
	turnpike = compiled(rig.Module + "cmd/turnpike")
	services = compiled(rig.Module+"cmd/gateway", rig.Module+"cmd/worker", rig.ServerNATS)
)

func goCommand(string) []string {
	dir, _ := goTools()
	return []string{filepath.Join(dir, "gotools")}
}

// python installs the package as a user does, and returns the directory.
var python = sync.OnceValues(func() (string, error) {
	const old = "import sys; sys.exit(sys.version_info < (3, 11))"
	if out, err := exec.Command("python3", "-c", old).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w %s: install Python 3.11 or later with pip (`apt-get install python3 python3-pip`, or hack/ensure-languages.sh)", err, out)
	}
	dir, err := scratch()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "python")
	cmd := exec.Command("python3", "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", "--root-user-action=ignore", "--target", dir, "./clients/python")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pip install: %w\n%s", err, out)
	}
	return dir, nil
})

func pythonCommand(program string) []string {
	return []string{"python3", "-W", "error", filepath.Join("clients/python/tests", program+".py")}
}

func pythonEnv() []string {
	dir, _ := python()
	return []string{"PYTHONPATH=" + dir, "PYTHONDONTWRITEBYTECODE=1"}
}

// typeScript packs the package, installs it as a user does, compiles the test programs against it, and returns
// their directory.
var typeScript = sync.OnceValues(func() (string, error) {
	const old = "const [a, b] = process.versions.node.split('.'); process.exit(a > 18 || a == 18 && b >= 19 ? 0 : 1)"
	if out, err := exec.Command("node", "-e", old).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w %s: install Node.js 18.19 or later with npm (`apt-get install nodejs npm`, or hack/ensure-languages.sh)", err, out)
	}
	if _, err := os.Stat(root + "clients/typescript/node_modules/typescript"); err != nil {
		return "", fmt.Errorf("%w: run `npm ci --ignore-scripts` in clients/typescript, as `make clients` does", err)
	}
	dir, err := scratch()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "typescript")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private": true, "type": "module"}`), 0o600); err != nil {
		return "", err
	}
	for _, c := range []struct {
		in      string
		command []string
	}{
		{root + "clients/typescript", []string{"npm", "pack", "--silent", "--pack-destination", dir}},
		{root + "clients/typescript", []string{"node_modules/.bin/tsc", "-p", "tsconfig.test.json", "--outDir", filepath.Join(dir, "test")}},
		{root + "clients/typescript", []string{"node_modules/.bin/tsc", "-p", "tsconfig.examples.json", "--outDir", filepath.Join(dir, "test")}},
		{dir, []string{"npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefer-offline", "./turnpike-0.1.0.tgz"}},
	} {
		cmd := exec.Command(c.command[0], c.command[1:]...)
		cmd.Dir = c.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(c.command, " "), err, out)
		}
	}
	return filepath.Join(dir, "test"), nil
})

// exampleCommand returns the command of a program in examples/clients.
func exampleCommand(l language, program string) []string {
	if l.name == "Python" {
		return []string{"python3", filepath.Join("examples/clients/python", program+".py")}
	}
	return typeScriptCommand(program)
}

func typeScriptCommand(program string) []string {
	dir, _ := typeScript()
	return []string{"node", filepath.Join(dir, program+".js")}
}

// each runs f for some languages. A language that is missing on this machine is a failure.
func each(t *testing.T, all []language, f func(t *testing.T, l language)) {
	t.Helper()
	for _, l := range all {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if err := l.ready(); err != nil {
				t.Fatal(err)
			}
			f(t, l)
		})
	}
}

// process is a test program.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when it has ended
	err   error         // its exit error

	mu  sync.Mutex
	out bytes.Buffer
	see chan struct{} // receives an element after new output
}

// Write implements io.Writer for the output of the program.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.see <- struct{}{}:
	default:
	}
	return p.out.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start starts a program of a language, with extra variables. It is killed when the test ends.
func start(t *testing.T, l language, program string, env ...string) *process {
	t.Helper()
	return run(t, l, l.command(program), env...)
}

// run is start for a command.
func run(t *testing.T, l language, command []string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{}), see: make(chan struct{}, 1)}
	// A child must not outlive the test, however the test ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = root, p, p
	p.cmd.Env = append(append(os.Environ(), l.env()...), env...)
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.ended) }() // ends with the process
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // with its children
		<-p.ended
		if t.Failed() {
			t.Logf("%s in %s printed:\n%s", command, l.name, p.output())
		}
	})
	return p
}

// after returns the rest of the line that the program has begun with a text.
func (p *process) after(text string) string {
	_, rest, _ := strings.Cut("\n"+p.output(), "\n"+text)
	rest, _, _ = strings.Cut(rest, "\n")
	return rest
}

// say writes a line to the program.
func (p *process) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// until returns when the program has printed a text.
func (p *process) until(t *testing.T, text string) {
	t.Helper()
	patience := time.NewTimer(testbed.Patience)
	defer patience.Stop()
	for !strings.Contains(p.output(), text) {
		select {
		case <-p.see:
		case <-p.ended:
			if !strings.Contains(p.output(), text) {
				t.Fatalf("the program ended (%v) before printing %q", p.err, text)
			}
		case <-patience.C:
			t.Fatalf("the program has not printed %q", text)
		}
	}
}

// succeeds waits for the program to exit successfully.
func (p *process) succeeds(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(testbed.Patience):
		t.Fatal("the program does not end")
	}
	if p.err != nil {
		t.Errorf("the program ended with %v", p.err)
	}
}
