package rig

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const unlimited = unix.RLIM_INFINITY

// endWithParent lets the kernel kill a process when its parent ends, however that happens.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// limitFileSize bounds the size in bytes of the files that a process writes.
func limitFileSize(pid int, size uint64) error {
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil)
}
