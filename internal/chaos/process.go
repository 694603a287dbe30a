package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// restart is how long a process that has ended is down at least.
const restart = 200 * time.Millisecond

// process is a program that is started again whenever it ends, as by a service
// manager.
type process struct {
	name string
	path string
	args []string
	env  []string

	mu    sync.Mutex
	cmd   *exec.Cmd     // nil while down
	ended chan struct{} // closed when cmd has ended
	until time.Time     // down at least until then
	exits int
}

// run keeps the process up until ctx ends, and kills it then. Its output goes to
// a file in dir.
func (p *process) run(ctx context.Context, dir string) error {
	out, err := os.OpenFile(filepath.Join(dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	for ctx.Err() == nil {
		cmd := exec.Command(p.path, p.args...)
		cmd.Env = append(os.Environ(), p.env...)
		cmd.Stdout, cmd.Stderr = out, out
		// It must not outlive the campaign, however that ends.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s: %w", p.name, err)
		}
		ended := make(chan struct{})
		p.mu.Lock()
		p.cmd, p.ended = cmd, ended
		p.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // how it ended plays no part
		stop()
		p.mu.Lock()
		p.cmd = nil
		p.exits++
		wait := max(restart, time.Until(p.until))
		p.mu.Unlock()
		close(ended)
		if !pause(ctx, wait) {
			break
		}
	}
	return nil
}

// kill ends the process with SIGKILL, waits for its end, and keeps it down for a
// while.
func (p *process) kill(down time.Duration) {
	p.mu.Lock()
	p.until = time.Now().Add(down)
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-ended
}

// signal sends a signal, if the process is up.
func (p *process) signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// pid is 0 while the process is down.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// pause waits for d and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// until polls ok until it returns nil, and returns its last error if ctx ends or
// the time is over.
func until(ctx context.Context, limit time.Duration, what string, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		// A question that went nowhere has to be asked again.
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := ok(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
}
