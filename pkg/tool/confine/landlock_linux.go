package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// minLandlock is the first version of Landlock that keeps a program from emptying files that
// it may not write.
const minLandlock = 3

// machines are those whose system calls are filtered.
var machines = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64,
	"ppc64le": unix.AUDIT_ARCH_PPC64LE, "s390x": unix.AUDIT_ARCH_S390X, "loong64": unix.AUDIT_ARCH_LOONGARCH64,
}

// landlocked reports why there is no Landlock here.
func landlocked() error {
	version, err := ll.LandlockGetABIVersion()
	if err != nil {
		return fmt.Errorf("the kernel has none: %w", err)
	}
	if version < minLandlock {
		return fmt.Errorf("the kernel has version %d, want at least %d (Linux 6.2)", version, minLandlock)
	}
	if machines[runtime.GOARCH] == 0 {
		return errors.New("no filter of system calls for " + runtime.GOARCH)
	}
	return nil
}

// landlock restricts this process to the files that the order shows.
func (o order) landlock() error {
	rules := []landlock.Rule{landlock.RODirs("/proc"), landlock.RWFiles(devices...)}
	for _, e := range visible(o.View) {
		info, err := os.Stat(e.Path)
		switch {
		case err != nil:
			continue
		case e.Access == readWrite && info.IsDir():
			rules = append(rules, landlock.RWDirs(e.Path))
		case e.Access == readWrite:
			rules = append(rules, landlock.RWFiles(e.Path))
		case info.IsDir():
			rules = append(rules, landlock.RODirs(e.Path))
		default:
			rules = append(rules, landlock.ROFiles(e.Path))
		}
	}
	if err := landlock.V9.BestEffort().RestrictPaths(rules...); err != nil {
		return err
	}
	return landlock.V9.BestEffort().RestrictScoped()
}

// visible returns the paths that are shown, none of which has a withheld one below it: Landlock
// cannot take away a part of what it gives.
func visible(view []entry) []entry {
	var shown, split []entry
	var hide []string
	for _, e := range view {
		if e.Access == withheld {
			hide = append(hide, e.Source)
		}
	}
	for split = slices.Clone(view); len(split) > 0; {
		e := split[0]
		split = split[1:]
		under := func(h string) bool { return within(e.Source, h) }
		above := func(h string) bool { return within(h, e.Source) }
		switch {
		case e.Access == withheld || slices.ContainsFunc(hide, under) && !slices.Contains(view, e):
		case slices.ContainsFunc(hide, above) && !slices.ContainsFunc(hide, under):
			names, _ := os.ReadDir(e.Source)
			for _, n := range names {
				path := filepath.Join(e.Source, n.Name())
				split = append(split, entry{path, path, e.Access})
			}
		default:
			shown = append(shown, e)
		}
	}
	return shown
}

// denySockets keeps this thread, and what it starts, from making sockets by a filter of system
// calls. Pairs of sockets stay.
func denySockets() error {
	const number, machine = 0, 4 // offsets in struct seccomp_data
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	load := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: k}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	const x32 = 0x40000000 // a bit in the numbers of a further ABI of amd64; others have no such numbers
	filter := []unix.SockFilter{
		load(machine),
		equal(machines[runtime.GOARCH], 1, 0),
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(number),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32, Jt: 2, Jf: 0},
		equal(unix.SYS_SOCKET, 1, 0),
		equal(unix.SYS_IO_URING_SETUP, 0, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}
