package confine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// order tells a new process how to confine itself, and which program to start then.
type order struct {
	Mode     string
	Program  string // a path; empty: start nothing, for a probe
	Args     []string
	Env      []string
	Dir      string
	View     []entry
	Network  bool
	Memory   int64 // memory limit in bytes
	PerGroup bool  // a cgroup limits memory and processes
}

// capabilities are those that a process needs in its own namespaces until it has confined itself.
var capabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_RESOURCE}

// Start starts a command. name is the name of its program in definitions of agents, for Config.Network. The caller sets
// the command's input and output before, as for cmd.Start; afterwards it must call cmd.Wait, and then Process.Close.
// The error wraps ErrRefused if the system cannot confine programs.
func (c *Confinement) Start(name string, cmd *exec.Cmd) (*Process, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	r := c.Report()
	switch {
	case r.Err != nil:
		return nil, r.Err
	case r.Mode == Off:
		return plain(cmd)
	}
	path, err := filepath.Abs(cmd.Path)
	if err != nil {
		return nil, err
	}
	o := order{Mode: r.Mode, Program: path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, View: c.view(path), Network: c.networked(name), Memory: c.cfg.Memory}
	if o.Dir == "" {
		if o.Dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	return c.start(o, cmd)
}

// probe returns nil if a mode works, by starting a process that does nothing.
func (c *Confinement) probe(way string) error {
	if c.group == nil && c.why == "" {
		var err error
		if c.group, err = delegated(); err != nil {
			c.why = err.Error()
		}
	}
	if way == Landlock {
		if err := landlocked(); err != nil {
			return err
		}
	}
	err := c.nothing(way)
	if err != nil && c.group != nil {
		c.group, c.why = nil, err.Error()
		err = c.nothing(way)
	}
	return err
}

// nothing starts a process that confines itself and ends.
func (c *Confinement) nothing(way string) error {
	cmd := exec.Command("")
	p, err := c.start(order{Mode: way, View: c.view(""), Memory: c.cfg.Memory}, cmd)
	if err != nil {
		return err
	}
	defer p.Close()
	return cmd.Wait()
}

// start changes cmd to this process's own executable, which confines itself as o says before it starts the program, and
// starts cmd.
func (c *Confinement) start(o order, cmd *exec.Cmd) (_ *Process, err error) {
	p := &Process{}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	attr := &syscall.SysProcAttr{Setsid: true}
	tmp := "/tmp"
	if o.Mode == Namespaces {
		attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
		if !o.Network {
			attr.Cloneflags |= unix.CLONE_NEWNET
		}
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		attr.AmbientCaps = capabilities
		o.View = tidy(append(o.View, entry{"/tmp", "", temporary}))
	} else {
		if tmp, err = os.MkdirTemp("", "turnpike-mcp-"); err != nil {
			return nil, err
		}
		p.undo = append(p.undo, func() { _ = os.RemoveAll(tmp) })
		o.View = tidy(append(o.View, entry{tmp, tmp, readWrite}))
	}
	if c.group != nil {
		dir, remove, err := c.group.make(c.count.Add(1), o.Memory)
		if err != nil {
			return nil, err
		}
		p.undo = append(p.undo, remove)
		defer dir.Close()
		attr.UseCgroupFD, attr.CgroupFD, o.PerGroup = true, int(dir.Fd()), true
	}
	home := c.cfg.Home
	if home == "" {
		home = tmp
	}
	cmd.Env = o.Env
	environ(cmd, home, tmp)
	o.Env = cmd.Env

	// A pipe carries the order. Other users could see arguments, and variables would affect
	// the process before it is confined.
	orders, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	p.kill = func() { _ = lifeline.Close() }
	p.undo = append(p.undo, p.kill)
	status, report, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer status.Close()
	cmd.Path, cmd.Args, cmd.Env, cmd.Dir, cmd.Err = "/proc/self/exe", []string{marker}, []string{}, "/", nil
	cmd.ExtraFiles = []*os.File{orders, report}
	cmd.SysProcAttr = attr
	err = cmd.Start()
	_ = report.Close()
	if err != nil {
		return nil, cause(err)
	}
	_ = orders.Close()
	if err = json.NewEncoder(lifeline).Encode(o); err == nil {
		var said []byte
		if said, err = io.ReadAll(status); err == nil && string(said) != ready {
			err = errors.New(cmp.Or(string(said), "the program ended before it was confined: retry; if this repeats, report this bug in Turnpike"))
		}
	}
	if err != nil {
		p.Kill()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	if c.group == nil && o.Program != "" {
		done := make(chan struct{})
		p.undo = append(p.undo, func() { close(done) })
		go watch(cmd.Process.Pid, o.Memory, done, func(why error) {
			p.over.Store(&why)
			p.Kill()
		})
	}
	return p, nil
}

// cause returns the error of the system without the name of this executable.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("make namespaces: %w", errno)
	}
	return err
}
