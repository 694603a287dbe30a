//go:build !linux

package rig

import (
	"errors"
	"math"
	"runtime"
	"syscall"
)

const unlimited = math.MaxUint64

// endWithParent has no equivalent here: a campaign that is killed leaves its processes behind.
func endWithParent() *syscall.SysProcAttr { return nil }

func limitFileSize(int, uint64) error {
	return errors.New("the file size of another process cannot be limited on " + runtime.GOOS)
}
