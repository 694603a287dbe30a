package confine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/turnpike-dev/turnpike/internal/tool/confine"
)

// program makes the test's own executable a hostile program, depending on its arguments.
const program = "CONFINE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(program) == "" {
		os.Exit(m.Run())
	}
	if err := act(os.Args[1], os.Args[2:]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(3)
	}
}

func act(what string, args []string) error {
	switch what {
	case "read":
		text, err := os.ReadFile(args[0])
		fmt.Println(string(text))
		return err
	case "list":
		entries, err := os.ReadDir(args[0])
		fmt.Println(entries)
		return err
	case "write":
		return os.WriteFile(args[0], []byte("was here"), 0o600)
	case "temporary":
		f, err := os.CreateTemp("", "")
		if err != nil {
			return err
		}
		fmt.Println(f.Name())
		return f.Close()
	case "connect":
		c, err := net.DialTimeout(args[0], args[1], 5*time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	case "signal":
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		return syscall.Kill(pid, 0)
	case "eat":
		mib, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		var all [][]byte
		for range mib {
			all = append(all, bytes.Repeat([]byte{1}, 1<<20))
		}
		fmt.Println(len(all))
	case "processes":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		for range n {
			if err := exec.Command("sleep", "1000").Start(); err != nil {
				return err
			}
		}
	case "call": // a system call by its number and two arguments
		var n [3]uintptr
		for i, arg := range args {
			v, err := strconv.Atoi(arg)
			if err != nil {
				return err
			}
			n[i] = uintptr(v)
		}
		if _, _, errno := syscall.Syscall(n[0], n[1], syscall.SOCK_RAW, n[2]); errno != 0 {
			return errno
		}
	case "interfaces":
		all, err := net.Interfaces()
		fmt.Println(all)
		return err
	case "share": // allocates memory in several processes
		var wait []*exec.Cmd
		for range 8 {
			cmd := exec.Command("/proc/self/exe", "hold", args[0])
			if err := cmd.Start(); err != nil {
				return err
			}
			wait = append(wait, cmd)
		}
		for _, cmd := range wait {
			if err := cmd.Wait(); err != nil {
				return err
			}
		}
	case "hold":
		mib, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		held := bytes.Repeat([]byte{1}, mib<<20)
		time.Sleep(20 * time.Second) //nolint:forbidigo // longer than it may
		fmt.Println(len(held))
	case "leave":
		cmd := exec.Command("sleep", args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd.Start()
	case "stay":
		cmd := exec.Command("sleep", args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return err
		}
		fmt.Println("here")
		return unix.Pause() // select {} would be a deadlock in a build without cgo
	case "namespaces":
		cmd := exec.Command("true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS}
		return cmd.Run()
	case "say":
		text, err := io.ReadAll(os.Stdin)
		fmt.Print(string(text))
		fmt.Fprint(os.Stderr, strings.Join(os.Environ(), " "))
		if err == nil && len(args) > 0 {
			os.Exit(7)
		}
		return err
	}
	return nil
}

// each runs a test with each confinement method of this system, and logs the missing ones.
func each(t *testing.T, test func(t *testing.T, mode string)) {
	t.Helper()
	for _, mode := range []string{confine.Namespaces, confine.Landlock} {
		if r := confinement(t, confine.Config{Mode: mode}).Report(); r.Err != nil {
			if mode == confine.Namespaces && namespaced(t) {
				t.Errorf("this system has namespaces: %v", r.Err)
			}
			t.Logf("NOT RUN: %v", r.Err)
			continue
		}
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// namespaced reports whether this system lets a program mount file systems in namespaces of its own.
func namespaced(t *testing.T) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "mount", "-t", "proc", "proc", "/proc")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	return cmd.Run() == nil
}

func confinement(t *testing.T, cfg confine.Config) *confine.Confinement {
	t.Helper()
	c, err := confine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// command returns the test's own executable as a program.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = []string{program + "=1", "PATH=" + os.Getenv("PATH")}
	return cmd
}

// run runs a program, and returns its output and its exit error.
func run(t *testing.T, c *confine.Confinement, args ...string) (string, error) {
	t.Helper()
	cmd := command(t, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := c.Start("program", cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = cmd.Wait()
	return out.String(), err
}

// folder returns a directory outside of the temporary directories, which each program has for itself.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", "testdata-") //nolint:usetesting // which would be a temporary one
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func file(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A program can read and write the given files only.
func TestFiles(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, mode string) {
		dir := folder(t)
		secret := file(t, filepath.Join(dir, "worker", "secret"), "hunter2")
		given := file(t, filepath.Join(dir, "given", "data"), "for all")
		below := file(t, filepath.Join(dir, "given", "withheld", "key"), "hunter2")
		own := file(t, filepath.Join(dir, "own", "data"), "mine")
		temporary := file(t, filepath.Join(t.TempDir(), "secret"), "hunter2")
		alone, beside := file(t, filepath.Join(dir, "alone", "data"), "for all"), file(t, filepath.Join(dir, "alone", "secret"), "hunter2")
		log, key := file(t, filepath.Join(dir, "given", "log"), "of all"), file(t, filepath.Join(dir, "given", "key"), "hunter2")
		c := confinement(t, confine.Config{
			Mode: mode, Read: []string{filepath.Join(dir, "given"), alone}, Write: []string{filepath.Join(dir, "own"), log},
			Home: filepath.Join(dir, "given", "withheld", "home"), Withheld: []string{filepath.Join(dir, "given", "withheld"), key},
		})
		for _, test := range []struct {
			what, path string
			may        bool
		}{
			{"read", given, true},
			{"write", given, false},
			{"write", filepath.Join(dir, "given", "new"), false},
			{"read", own, true},
			{"write", own, true},
			{"write", filepath.Join(dir, "given", "withheld", "home", "cache"), true},
			{"read", below, false},
			{"write", filepath.Join(dir, "given", "withheld", "new"), false},
			{"read", alone, true},
			{"write", alone, false},
			{"read", beside, false},
			{"read", log, true},
			{"write", log, true},
			{"read", key, mode == confine.Namespaces}, // where it is /dev/null
			{"write", key, mode == confine.Namespaces},
			{"read", secret, false},
			{"write", secret, false},
			{"read", temporary, false},
			{"list", filepath.Dir(temporary), false},
			{"read", fmt.Sprintf("/proc/%d/environ", os.Getpid()), false},
			{"read", fmt.Sprintf("/proc/%d/mem", os.Getpid()), false},
			{"list", fmt.Sprintf("/proc/%d/cwd/", os.Getpid()), false},
			{"read", fmt.Sprintf("/proc/%d/maps", os.Getpid()), false},
			{"list", filepath.Dir(secret), false},
			{"list", "/run", false},
			{"read", "/etc/shadow", false},
			{"write", "/etc/passwd", false},
			{"write", "/proc/sys/kernel/core_pattern", false},
			{"write", "/usr/bin/turnpike-was-here", false},
			{"temporary", "", true},
			{"namespaces", "", mode == confine.Landlock}, // where they have no effect: the files stay unchanged
		} {
			out, err := run(t, c, test.what, test.path)
			if (err == nil) != test.may || strings.Contains(out, "hunter2") {
				t.Errorf("%s %s: %v, %q, want it permitted: %t", test.what, test.path, err, out, test.may)
			}
			if test.what == "temporary" {
				if _, err := os.Stat(strings.TrimSpace(out)); err == nil {
					t.Errorf("%s is left", out)
				}
			}
		}
		for _, path := range []string{alone, beside, key, below, secret, given} {
			if text, err := os.ReadFile(path); err != nil || string(text) == "was here" {
				t.Errorf("%s has %q, %v", path, text, err)
			}
		}
	})
}

// Without permission, a program has no network: neither the host's network nor its sockets.
func TestNetwork(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, mode string) {
		var config net.ListenConfig
		abstract := fmt.Sprintf("@turnpike-confine-%s-%d", mode, os.Getpid())
		path := filepath.Join(folder(t), "s")
		for _, test := range []struct {
			network, address string
			given            bool // to a program with the network
		}{
			{"tcp", "127.0.0.1:0", true}, {"unix", abstract, mode == confine.Namespaces}, {"unix", path, false},
		} {
			l, err := config.Listen(t.Context(), test.network, test.address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			at := l.Addr().String()
			if out, err := run(t, confinement(t, confine.Config{Mode: mode}), "connect", test.network, at); err == nil {
				t.Errorf("without a network it reached %s: %s", at, out)
			}
			if test.address == path && mode == confine.Landlock {
				continue // only newer kernels forbid it
			}
			out, err := run(t, confinement(t, confine.Config{Mode: mode, Network: []string{"other", "program"}}), "connect", test.network, at)
			if (err == nil) != test.given {
				t.Errorf("with the network it reached %s: %v, %s, want %t", at, err, out, test.given)
			}
		}
		if out, err := run(t, confinement(t, confine.Config{Mode: mode}), "connect", "udp", "127.0.0.1:53"); mode == confine.Landlock && err == nil {
			t.Errorf("a socket of UDP: %s", out)
		}
	})
}

// Memory and processes are bounded.
func TestBounds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, mode string) {
		c := confinement(t, confine.Config{Mode: mode, Memory: 256 << 20})
		if out, err := run(t, c, "eat", "64"); err != nil {
			t.Errorf("64 MiB: %v, %.300s", err, out)
		}
		if out, err := run(t, c, "eat", "2048"); err == nil {
			t.Errorf("2 GiB: %s", out)
		}
		if strings.Contains(c.Report().Memory, "by cgroup") || mode == confine.Namespaces && bounded() {
			if out, err := run(t, c, "processes", "2000"); err == nil {
				t.Errorf("2000 processes: %s", out)
			}
		} else {
			t.Logf("NOT RUN: %s does not bound processes here", mode)
		}
	})
}

// Eight processes together have no more memory than one may have.
func TestMemoryOfAll(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, mode string) {
		c := confinement(t, confine.Config{Mode: mode, Memory: 256 << 20})
		cmd := command(t, "share", "100")
		p, err := c.Start("program", cmd)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := cmd.Wait(); err == nil {
			t.Error("eight processes held 800 MiB, 256 are allowed")
		}
		if err := p.Err(); !strings.Contains(c.Report().Memory, "by cgroup") && (err == nil || !strings.Contains(err.Error(), "at most 256")) {
			t.Errorf("Err = %v, want the limit", err)
		}
	})
}

// A program cannot use kernel interfaces that namespaces and Landlock leave open, but still sees the addresses
// of its own network.
func TestSystemCalls(t *testing.T) {
	t.Parallel()
	number := func(n int) string { return strconv.Itoa(n) }
	socket := number(unix.SYS_SOCKET)
	each(t, func(t *testing.T, mode string) {
		for _, network := range [][]string{nil, {"program"}} {
			c := confinement(t, confine.Config{Mode: mode, Network: network})
			for name, call := range map[string][]string{
				"AF_VSOCK": {socket, number(unix.AF_VSOCK), "0"}, "AF_PACKET": {socket, number(unix.AF_PACKET), "0"}, "AF_ALG": {socket, number(unix.AF_ALG), "0"},
				"NETLINK_NETFILTER": {socket, number(unix.AF_NETLINK), number(unix.NETLINK_NETFILTER)}, "NETLINK_AUDIT": {socket, number(unix.AF_NETLINK), number(unix.NETLINK_AUDIT)},
				"io_uring_setup": {number(unix.SYS_IO_URING_SETUP), "1", "0"}, "keyctl": {number(unix.SYS_KEYCTL), "0", "0"}, "add_key": {number(unix.SYS_ADD_KEY), "0", "0"},
				"userfaultfd": {number(unix.SYS_USERFAULTFD), "0", "0"}, "bpf": {number(unix.SYS_BPF), "0", "0"},
			} {
				out, err := run(t, c, append([]string{"call"}, call...)...)
				filtered := strings.Contains(out, unix.ENOSYS.Error()) || strings.Contains(out, unix.EAFNOSUPPORT.Error()) ||
					strings.Contains(out, unix.EPROTONOSUPPORT.Error()) || strings.Contains(out, unix.EACCES.Error())
				if err == nil || !filtered {
					t.Errorf("%s, network %v: %v, %s, want it filtered", name, network, err, out)
				}
			}
			if out, err := run(t, c, "interfaces"); (mode == confine.Namespaces || network != nil) && (err != nil || !strings.Contains(out, "lo")) {
				t.Errorf("interfaces, network %v: %v, %s", network, err, out)
			}
		}
	})
}

// bounded reports whether the number of processes is bounded without a cgroup: for root, only from Linux 6.14
// on.
func bounded() bool {
	var major, minor int
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	_, err := fmt.Sscanf(string(text), "%d.%d", &major, &minor)
	return os.Getuid() != 0 || err == nil && (major > 6 || major == 6 && minor >= 14)
}

// No process outlives the program or its cancellation, even in a session of its own.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, mode string) {
		c := confinement(t, confine.Config{Mode: mode})
		mark := fmt.Sprintf("1000.%d%d1", os.Getpid(), len(mode))
		if out, err := run(t, c, "leave", mark); err != nil {
			t.Fatalf("%v, %s", err, out)
		}
		until(t, mark, false)

		mark = fmt.Sprintf("1000.%d%d2", os.Getpid(), len(mode))
		cmd := command(t, "stay", mark)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Start("program", cmd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		until(t, mark, true)
		p.Kill()
		if err := cmd.Wait(); err == nil {
			t.Error("it has ended well")
		}
		p.Close()
		until(t, mark, false)
	})
}

// An ordinary program gets its input, output and exit code as without confinement, and only its own variables.
func TestAsEver(t *testing.T) {
	t.Setenv("WORKERS_SECRET", "hunter2")
	each(t, func(t *testing.T, mode string) {
		cmd := command(t, "say", "and fail")
		var out, said bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("hello"), &out, &said
		p, err := confinement(t, confine.Config{Mode: mode}).Start("program", cmd)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ended := cmd.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](ended); !ok || exit.ExitCode() != 7 || out.String() != "hello" {
			t.Errorf("%v, %q", ended, out.String())
		}
		if env := said.String(); strings.Contains(env, "hunter2") || !strings.Contains(env, "TMPDIR=") || strings.Contains(env, "HOME="+os.Getenv("HOME")+" ") {
			t.Errorf("variables: %s", env)
		}
		cmd = exec.CommandContext(t.Context(), "/bin/sh", "-c", "exit 0")
		cmd.Args[0], cmd.Path = "nothing", filepath.Join(t.TempDir(), "nothing")
		if _, err := confinement(t, confine.Config{Mode: mode}).Start("program", cmd); err == nil || !strings.Contains(err.Error(), "TURNPIKE_MCP_READ") {
			t.Errorf("a missing program: %v", err)
		}
	})
}

// Each process of a program has its own limits, and leaves no core file.
func TestLimits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, mode string) {
		c := confinement(t, confine.Config{Mode: mode, Memory: 256 << 20})
		out, err := run(t, c, "read", "/proc/self/limits")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"Max core file size 0 0", "Max open files 4096 4096"}
		if !strings.Contains(c.Report().Memory, "by cgroup") {
			want = append(want, "Max data size 268435456 268435456")
		}
		if mode == confine.Namespaces {
			want = append(want, "Max processes 512 512")
		}
		for _, line := range want {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), line) {
				t.Errorf("it has not %s:\n%s", line, out)
			}
		}
	})
}

func TestNoCapabilities(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, mode string) {
		out, err := run(t, confinement(t, confine.Config{Mode: mode}), "read", "/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"NoNewPrivs:\t1", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000"} {
			if !strings.Contains(out, want) {
				t.Errorf("it has not %s:\n%s", want, out)
			}
		}
	})
}

// processes returns the processes with an argument.
func processes(mark string) []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), "sleep\x00"+mark+"\x00") {
			found = append(found, path)
		}
	}
	return found
}

// until waits until a process with an argument exists, or none.
func until(t *testing.T, mark string, there bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(processes(mark)) > 0 != there {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("processes with %s: %v, want some: %t", mark, processes(mark), there)
		}
	}
}
