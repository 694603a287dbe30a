package devserver

import (
	"syscall"
	"testing"
)

// A process that is being started holds a copy of each open file until it executes its program: the lock is
// released nevertheless.
func TestUnlockDespiteACopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	held, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(held)
	unlockDir(f)
	again, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	unlockDir(again)
}
