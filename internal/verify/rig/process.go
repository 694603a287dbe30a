// Package rig runs deployments of real processes for tests that break, load or observe them from outside:
// programs that restart when they are killed, NATS and Redis servers, and the links between them.
package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// restart is the minimum time that a process stays down after it has ended.
const restart = 200 * time.Millisecond

// Process is a program that is restarted whenever it ends, as by a service manager.
type Process struct {
	Name string
	Path string
	Args []string
	Env  []string // added to that of this process

	mu    sync.Mutex
	cmd   *exec.Cmd     // nil while down
	ended chan struct{} // closed when cmd has ended
	until time.Time     // down at least until then
	exits int
	peak  int64
	used  time.Duration // processor time of earlier lives
}

// Run keeps the process up until ctx ends, and kills it then. Its output goes to
// NAME.log in dir.
func (p *Process) Run(ctx context.Context, dir string) error {
	out, err := os.OpenFile(filepath.Join(dir, p.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	for ctx.Err() == nil {
		cmd := exec.Command(p.Path, p.Args...)
		cmd.Env = append(os.Environ(), p.Env...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.SysProcAttr = endWithParent()
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s: %w", p.Name, err)
		}
		ended := make(chan struct{})
		p.mu.Lock()
		p.cmd, p.ended = cmd, ended
		p.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // the exit error does not matter
		stop()
		p.mu.Lock()
		p.cmd = nil
		p.exits++
		p.used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		p.mu.Unlock()
		close(ended)
		for Pause(ctx, restart) && p.down() {
		}
	}
	return nil
}

// Kill ends the process with SIGKILL, waits for its end, and keeps it down for a
// while.
func (p *Process) Kill(down time.Duration) {
	p.mu.Lock()
	p.until = time.Now().Add(down)
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	p.Peak() // measure before the end: the system's figures for an ended process may be its parent's
	_ = cmd.Process.Kill()
	<-ended
}

// Revive ends the time that a killed process is kept down.
func (p *Process) Revive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
}

func (p *Process) down() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.until)
}

// Signal sends a signal, if the process is up.
func (p *Process) Signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// PID is 0 while the process is down.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Exits returns the number of times that the process has ended, by itself or killed.
func (p *Process) Exits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exits
}

// Peak returns the maximum resident memory of the process, in bytes, since its first start,
// excluding lives that it has ended by itself; 0 if the system does not report it.
func (p *Process) Peak() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.peak = max(p.peak, memory(p.cmd.Process.Pid, "VmHWM"))
	}
	return p.peak
}

// Own returns the resident memory that is not of files, which processes share, in bytes.
func (p *Process) Own() int64 { return memory(p.PID(), "RssAnon") }

// Resident returns the current resident memory of the process, in bytes.
func (p *Process) Resident() int64 { return memory(p.PID(), "VmRSS") }

// CPU returns the processor time that the process has used since its first start, in all its lives.
func (p *Process) CPU() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return p.used
	}
	return p.used + cpu(p.cmd.Process.Pid)
}

// ticksPerSecond of /proc/PID/stat on Linux.
const ticksPerSecond = 100

// cpu reads user and system time from /proc/PID/stat.
func cpu(pid int) (used time.Duration) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, which may contain anything, ends with the last parenthesis.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseInt(f, 10, 64)
		used += time.Duration(n) * time.Second / ticksPerSecond
	}
	return used
}

// memory reads a line of /proc/PID/status.
func memory(pid int, name string) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, line, _ := strings.Cut(string(status), name+":")
	var kilobytes int64
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}

// Pause waits for d and reports whether ctx is still alive.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Until polls ok until it returns nil. It returns ok's last error if ctx ends or the limit has passed.
func Until(ctx context.Context, limit time.Duration, what string, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		// A lost request must be repeated.
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := ok(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if !Pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
}
