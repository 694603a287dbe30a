package app

import (
	"bytes"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

const (
	// memoryShare is the part of the machine's memory that a worker reserves for turns by default: a machine may run
	// several workers, and the rest of a worker's memory is garbage and what is too small to be reserved.
	memoryShare = 8

	// minMemoryMiB is the least default. usualMemory is the memory of a machine that does not report it, in bytes.
	minMemoryMiB = 64
	usualMemory  = 8 << 30
)

// memory returns the memory that the turns of a worker may reserve, and its parts for the answers of tools, for files
// and for the views of runs, in MiB. A part that is set replaces its share of the total. machine is the memory of the
// machine in bytes; 0 means that it is not known.
func (c WorkerConfig) memory(machine int64) (total, answers, files, views int64) {
	if machine == 0 {
		machine = usualMemory
	}
	or := func(set *int64, value int64) int64 {
		if set != nil {
			return *set
		}
		return max(value, 1)
	}
	total = or(c.MemoryMiB, max(machine/memoryShare>>20, minMemoryMiB))
	return total, or(c.AnswersMiB, total/4), or(c.FileMemoryMiB, total/4), or(c.ViewsMiB, total/2)
}

// availableMemory returns the memory of the machine, or the limit of this process's control group or of one around it
// if that is less, in bytes. It returns 0 if the system reports neither, as outside Linux. root is the root directory.
func availableMemory(root fs.FS) (least int64) {
	consider := func(n int64, err error) {
		if err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	limit := func(file string) (int64, error) {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // "max" is no limit
	}
	if text, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		_, line, _ := strings.Cut(string(text), "MemTotal:")
		line, _, _ = strings.Cut(line, "kB")
		n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		consider(n<<10, err)
	}
	const groups = "sys/fs/cgroup"
	consider(limit(groups + "/memory/memory.limit_in_bytes")) // version 1, in a container
	own, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for dir := path.Join("/", name); ok; dir = path.Dir(dir) {
			consider(limit(path.Join(groups, dir, "memory.max")))
			ok = dir != "/"
		}
	}
	return least
}
