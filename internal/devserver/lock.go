package devserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockDir locks the directory for this process until unlockDir. The system releases the lock when the
// process dies, however it dies.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "LOCK")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w: use --data-dir to choose one that this user may write to", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock data directory %s: %w: use --data-dir to choose one in a file system that supports locks", dir, err)
		}
		return nil, fmt.Errorf("data directory %s is in use by %s: stop it, or choose another with --data-dir", dir, owner(path))
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // tells people, proves nothing
	}
	return f, nil
}

// unlockDir releases the lock. Close alone would not: a child process that another goroutine is
// starting has a copy of the file until it executes its program.
func unlockDir(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // of an open file it does not fail
	_ = f.Close()                                   // nothing is left to write
}

func owner(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "another process"
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}
