package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Modes of a Confinement. Auto uses Namespaces, or else Landlock, and refuses programs if the system has neither.
// Namespaces and Landlock refuse programs if the system lacks that feature. Off confines nothing.
const (
	Auto       = "auto"
	Namespaces = "namespaces"
	Landlock   = "landlock"
	Off        = "off"
)

// Modes are the valid values of Config.Mode.
var Modes = []string{Auto, Namespaces, Landlock, Off}

const (
	// DefaultMemory is the default memory limit of a program, and MinMemory the minimum that a Config may set, in
	// bytes.
	DefaultMemory = 512 << 20
	MinMemory     = 64 << 20

	// maxProcesses is the maximum number of processes and threads of a program.
	maxProcesses = 512

	// maxFiles is the maximum number of open files of each process.
	maxFiles = 4096
)

// Config is the configuration of a Confinement. The zero value confines as much as the system can.
type Config struct {
	Mode string // default: Auto

	// Network are the names of programs that have the network of this process; "*" means all programs.
	Network []string

	// Read and Write are paths that programs may read, or read and write, in addition to the system's own. They must
	// exist.
	Read, Write []string

	// Withheld are paths that programs cannot see, even below a readable path. Paths that do not exist are ignored.
	Withheld []string

	// Home is the writable, persistent home directory of all programs; New creates it if it does not exist. Default:
	// the temporary directory of the program.
	Home string

	// Memory is the memory limit of a program, in bytes, at least MinMemory. Default: DefaultMemory.
	Memory int64
}

// ErrRefused reports that a program was not started because the system cannot confine it.
var ErrRefused = errors.New("this system cannot confine the programs of MCP tools, so the worker does not start them")

// Report describes how programs are confined.
type Report struct {
	Mode    string // Namespaces, Landlock or Off; empty if programs are refused
	Network string // which programs have a network
	Memory  string // the memory limit and how it is enforced
	Err     error  // why programs are refused, and what to do; or nil
}

// String returns the report as one line for people.
func (r Report) String() string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Mode == Off:
		return "not confined: they have all rights of the worker"
	default:
		return r.Mode + ", " + r.Network + ", " + r.Memory
	}
}

// Confinement starts programs. It is safe for concurrent use.
type Confinement struct {
	cfg   Config
	try   func(mode string) error // starts a confined process that does nothing
	group *cgroup                 // creates groups for programs; nil if this process may not
	why   string                  // the reason why group is nil
	count atomic.Int64

	report func() Report
}

// Default returns the Confinement of the zero Config.
func Default() *Confinement { return with(Config{Mode: Auto, Memory: DefaultMemory}) }

// New returns a confinement. The error reports an invalid mode or memory limit, a path in Read or Write that does not
// exist, or a home that cannot be created.
func New(cfg Config) (*Confinement, error) {
	if cfg.Mode == "" {
		cfg.Mode = Auto
	}
	if !slices.Contains(Modes, cfg.Mode) {
		return nil, fmt.Errorf("confinement of MCP programs is %q: set TURNPIKE_MCP_CONFINEMENT (in Go, Confinement.Mode) to one of %s", cfg.Mode, strings.Join(Modes, ", "))
	}
	if cfg.Memory == 0 {
		cfg.Memory = DefaultMemory
	}
	if cfg.Memory < MinMemory {
		return nil, fmt.Errorf("memory of MCP programs is %d MiB, the minimum is %d: raise TURNPIKE_MCP_MEMORY_MIB (in Go, Confinement.Memory)", cfg.Memory>>20, MinMemory>>20)
	}
	if cfg.Home != "" {
		if err := os.MkdirAll(cfg.Home, 0o700); err != nil {
			return nil, fmt.Errorf("home of MCP programs: %w: correct TURNPIKE_MCP_HOME (in Go, Confinement.Home)", err)
		}
	}
	for name, paths := range map[string]*[]string{
		"TURNPIKE_MCP_READ (in Go, Confinement.Read)": &cfg.Read, "TURNPIKE_MCP_WRITE (in Go, Confinement.Write)": &cfg.Write, "": &cfg.Withheld,
	} {
		var err error
		if *paths, err = absolute(*paths); err != nil && name != "" {
			return nil, fmt.Errorf("%w: correct %s", err, name)
		}
	}
	if cfg.Home != "" {
		home, err := filepath.Abs(cfg.Home)
		if err != nil {
			return nil, err
		}
		cfg.Home = home
	}
	return with(cfg), nil
}

func with(cfg Config) *Confinement {
	c := &Confinement{cfg: cfg}
	c.try = c.probe
	c.report = sync.OnceValue(c.decide)
	return c
}

// absolute returns the existing paths in absolute form. The error names the missing ones.
func absolute(paths []string) ([]string, error) {
	var all []string
	var errs []error
	for _, p := range paths {
		if p == "" {
			continue
		}
		p, err := filepath.Abs(p)
		if err == nil {
			_, err = os.Stat(p)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, p)
	}
	return all, errors.Join(errs...)
}

// Report describes how programs are confined. The first call determines this, by starting a process that does nothing.
func (c *Confinement) Report() Report { return c.report() }

// decide returns the report of the first mode that works.
func (c *Confinement) decide() Report {
	if c.cfg.Mode == Off {
		return Report{Mode: Off}
	}
	ways := []string{c.cfg.Mode}
	if c.cfg.Mode == Auto {
		ways = []string{Namespaces, Landlock}
	}
	r := Report{Network: "no network"}
	if slices.Contains(c.cfg.Network, "*") {
		r.Network = "the worker's network"
	} else if len(c.cfg.Network) > 0 {
		r.Network = "no network but for " + strings.Join(c.cfg.Network, ", ")
	}
	var reasons []string
	for _, way := range ways {
		err := c.try(way)
		if err == nil {
			r.Mode = way
			r.Memory = c.bound()
			return r
		}
		reasons = append(reasons, fmt.Sprintf("no %s (%v)", way, err))
	}
	r.Err = fmt.Errorf("%w: %s. Run the worker on a system that can confine them, or set TURNPIKE_MCP_CONFINEMENT=off to start programs with all rights of the worker", ErrRefused, strings.Join(reasons, ", "))
	return r
}

// bound describes how memory is limited.
func (c *Confinement) bound() string {
	if c.group != nil {
		return fmt.Sprintf("%d MiB of memory by cgroup", c.cfg.Memory>>20)
	}
	return fmt.Sprintf("%d MiB of memory, measured every %v (%s)", c.cfg.Memory>>20, measureInterval, c.why)
}

// Process is a program that was started. Its methods are safe for concurrent use.
type Process struct {
	kill func()
	undo []func()
	once sync.Once
	over atomic.Pointer[error]
}

// Err returns the reason why the confinement has ended the program, or nil if it has not.
func (p *Process) Err() error {
	if err := p.over.Load(); err != nil {
		return *err
	}
	return nil
}

// Kill ends the program at once, with the processes that it has started.
func (p *Process) Kill() {
	if p.kill != nil {
		p.kill()
	}
}

// Close removes what a program has left behind, such as its temporary directory. Call it after the program has ended;
// later calls have no effect.
func (p *Process) Close() {
	p.once.Do(func() {
		for _, f := range p.undo {
			f()
		}
	})
}

// networked reports whether the program with a name has the network.
func (c *Confinement) networked(name string) bool {
	return slices.Contains(c.cfg.Network, name) || slices.Contains(c.cfg.Network, "*")
}

// environ adds HOME and TMPDIR to the variables of a command that does not set them.
func environ(cmd *exec.Cmd, home, tmp string) {
	for name, value := range map[string]string{"HOME": home, "TMPDIR": tmp} {
		if value != "" && !slices.ContainsFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
}

// plain starts a command unconfined, in a new process group.
func plain(cmd *exec.Cmd) (*Process, error) {
	environ(cmd, os.Getenv("HOME"), os.Getenv("TMPDIR"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{kill: func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }}, nil
}

// missing reports whether a path does not exist.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
