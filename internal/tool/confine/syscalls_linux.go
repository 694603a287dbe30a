package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// machine is the architecture of this build, as the kernel names it to a filter of system calls.
var machine = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64,
	"ppc64le": unix.AUDIT_ARCH_PPC64LE, "s390x": unix.AUDIT_ARCH_S390X, "loong64": unix.AUDIT_ARCH_LOONGARCH64,
}[runtime.GOARCH]

// socketCall is the number of socketcall(2) on architectures that have it. Its arguments are in memory, which a filter
// cannot read.
var socketCall = map[string]uint32{"ppc64le": 102, "s390x": 102}

// denied are system calls that tools do not need and that reach parts of the kernel which neither
// namespaces nor Landlock cover. A denied call fails as if the kernel did not implement it.
var denied = []uint32{
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
}

// filterSystemCalls restricts the system calls of this thread and of the processes that it starts. The calls in denied
// and socketCall fail, and a call of another architecture kills the process. If sockets is false, they can create no
// sockets except pairs. Otherwise they can create only those of IPv4, IPv6, Unix, and netlink for addresses and routes,
// which name resolvers need. The caller must have set no_new_privs.
func filterSystemCalls(sockets bool) error {
	code, err := bpf.Assemble(systemCalls(sockets))
	if err != nil {
		return fmt.Errorf("make the filter of system calls for a confined program: %w", err)
	}
	filter := make([]unix.SockFilter, len(code))
	for i, c := range code {
		filter[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // some tens
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// systemCalls returns the filter. The kernel runs it on struct seccomp_data at each call.
func systemCalls(sockets bool) []bpf.Instruction {
	const number, arch, family, protocol = 0, 4, 16, 32 // offsets; arguments have 64 bits each
	argument := func(at uint32) bpf.Instruction {
		if runtime.GOARCH == "s390x" {
			at += 4 // the lower half
		}
		return bpf.LoadAbsolute{Off: at, Size: 4}
	}
	refuse := func(errno uint32) bpf.Instruction { return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | errno} }
	// unless skips one instruction when the loaded value is v.
	unless := func(v uint32) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipFalse: 0, SkipTrue: 1}
	}

	filter := []bpf.Instruction{
		bpf.LoadAbsolute{Off: arch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: machine, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: number, Size: 4},
	}
	// A bit in the numbers of a further ABI of amd64; other architectures have no such numbers.
	const x32 = 0x40000000
	filter = append(filter, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1}, refuse(uint32(unix.ENOSYS)))
	for _, call := range denied {
		filter = append(filter, unless(call), refuse(uint32(unix.ENOSYS)))
	}
	if call, ok := socketCall[runtime.GOARCH]; ok {
		filter = append(filter, unless(call), refuse(uint32(unix.ENOSYS)))
	}
	if !sockets {
		return append(filter, unless(unix.SYS_SOCKET), refuse(uint32(unix.EACCES)), bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	filter = append(filter, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKET, SkipTrue: 1}, allow, argument(family))
	for _, f := range []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		filter = append(filter, unless(f), allow)
	}
	return append(
		filter,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 1}, refuse(uint32(unix.EAFNOSUPPORT)),
		argument(protocol), unless(unix.NETLINK_ROUTE), allow,
		refuse(uint32(unix.EPROTONOSUPPORT)),
	)
}
