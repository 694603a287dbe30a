package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// marker is the only argument of a process that must confine itself.
	marker = "turnpike: program of an MCP tool"

	// ready is the status message of a process whose program has started.
	ready = "ready"
)

// A process that must confine itself does so here, before main, and before the initialization of the packages that
// import this one.
//
//nolint:gochecknoinits // see above
func init() {
	if len(os.Args) == 1 && os.Args[0] == marker {
		// Restrictions of this thread also apply to the processes that it starts.
		runtime.LockOSThread()
		os.Exit(child())
	}
}

func child() int {
	lifeline, status := os.NewFile(3, "orders"), os.NewFile(4, "status")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	var o order
	err := json.NewDecoder(lifeline).Decode(&o)
	if err == nil {
		err = o.confine()
	}
	pid := 0
	if err == nil && o.Program != "" {
		pid, err = o.start()
	}
	if err != nil {
		_, _ = fmt.Fprint(status, err)
		return 1
	}
	// A terminal sends these signals to the whole process group; the program decides how to end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	_, _ = fmt.Fprint(status, ready)
	_ = status.Close()
	if pid == 0 {
		return 0
	}
	letGo()
	left, ended := make(chan struct{}), make(chan int, 1)
	go func() {
		_, _ = io.Copy(io.Discard, lifeline) // until the worker closes it or dies
		close(left)
	}()
	go func() { ended <- reap(pid) }()
	code := 1
	select {
	case code = <-ended:
	case <-left:
	}
	// Landlock permits signals only from the thread that started the program.
	killChildren()
	return code
}

// confine removes the rights from this thread that the program must not have.
func (o order) confine() error {
	var steps []func() error
	if o.Mode == Namespaces {
		steps = append(steps, o.mount)
		if !o.Network {
			steps = append(steps, loopback)
		}
		steps = append(steps, o.limit)
	} else {
		// Orphans become children of this process, which ends them.
		steps = append(steps, func() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }, o.limit)
	}
	steps = append(steps, dropCapabilities, func() error {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		// The program must not trace this process or open its executable.
		return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	})
	if o.Mode == Landlock {
		steps = append(steps, o.landlock)
	}
	// A new network namespace has no network. Landlock has no such feature, so the filter denies sockets.
	steps = append(steps, func() error { return filterSystemCalls(o.Mode == Namespaces || o.Network) })
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// start starts the program on this thread.
func (o order) start() (int, error) {
	if _, err := os.Stat(o.Dir); err != nil {
		o.Dir = "/"
	}
	pid, err := syscall.ForkExec(o.Program, o.Args, &syscall.ProcAttr{Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2}})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: check that the program exists and is executable; if so, add it and its interpreter to TURNPIKE_MCP_READ of the worker, because a confined program cannot read other files", err)
	}
	return pid, err
}

// letGo closes the streams of this process, so that their other ends notice when the program closes them.
func letGo() {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(int(null.Fd()), fd, 0)
	}
}

// reap waits for the program and returns its exit code. Meanwhile it also reaps orphans.
func reap(pid int) int {
	for {
		var s syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &s, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1
		case ended == pid && s.Exited():
			return s.ExitStatus()
		case ended == pid && s.Signaled():
			return 128 + int(s.Signal())
		}
	}
}

// killChildren ends all processes below this one, outside of a process namespace. In one, the end of its first process
// does that.
func killChildren() {
	if os.Getpid() == 1 {
		return
	}
	for {
		var all []string
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, t := range tasks {
			children, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
			all = append(all, strings.Fields(string(children))...)
		}
		for _, child := range all {
			if pid, err := strconv.Atoi(child); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if len(all) == 0 {
			return
		}
		// Another thread may have waited for a child already, so do not rely on the result.
		_, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		time.Sleep(time.Millisecond) //nolint:forbidigo // see above
	}
}

// limit sets limits for each process. The memory limit counts memory that was written: address space alone is cheap,
// and some interpreters reserve much of it.
func (o order) limit() error {
	limits := map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles}
	if !o.PerGroup {
		limits[unix.RLIMIT_DATA] = uint64(o.Memory)
	}
	if o.Mode == Namespaces {
		// With Landlock this limit would also count the other processes of the worker's user.
		limits[unix.RLIMIT_NPROC] = maxProcesses
	}
	for resource, n := range limits {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(resource, &now); err != nil {
			return fmt.Errorf("read limit %d: %w", resource, err)
		}
		n = min(n, now.Max)
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("set limit %d to %d: %w", resource, n, err)
		}
	}
	return nil
}

// dropCapabilities removes all capabilities from this thread and from the processes that it starts, even as root.
func dropCapabilities() error {
	const noRoot = 1<<0 | 1<<1 // SECBIT_NOROOT, locked
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("set securebits: %w", err) // a process that may not do it has no capabilities to pass on
	}
	for c := range uintptr(64) {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			break // there are no more, or none that this thread may drop
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	none := [2]unix.CapUserData{}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// loopback starts the only interface of a new network namespace.
func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(s) //nolint:errcheck // nothing was written
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}
