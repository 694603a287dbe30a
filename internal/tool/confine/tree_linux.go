package confine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// measureInterval is the time between two measurements of a program without a cgroup.
const measureInterval = 200 * time.Millisecond

// watch measures the descendants of the process pid, without pid itself, every measureInterval. If they are more than
// maxProcesses, or use more than memory bytes in total, watch calls kill with the reason and returns. It also returns
// when done is closed. It is for programs without a cgroup: there the kernel limits the memory of each process, but not
// their sum.
func watch(pid int, memory int64, done <-chan struct{}, kill func(error)) {
	tick := time.NewTicker(measureInterval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		all := below(pid)
		if len(all) > maxProcesses {
			kill(fmt.Errorf("the program ran %d processes, at most %d are allowed, so it was stopped: configure it to start fewer", len(all), maxProcesses))
			return
		}
		var used int64
		for _, p := range all {
			used += memoryOf(p)
		}
		if used > memory {
			kill(fmt.Errorf("the %d processes of the program used %d MiB of memory, at most %d are allowed, so it was stopped: raise TURNPIKE_MCP_MEMORY_MIB of the worker", len(all), used>>20, memory>>20))
			return
		}
	}
}

// below returns the descendants of pid. Orphans become children of pid, which is the first process of its namespace or
// a subreaper.
func below(pid int) []int {
	var all []int
	for next := []int{pid}; len(next) > 0 && len(all) <= maxProcesses; {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", next[0]))
		for _, t := range tasks {
			children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", next[0], t.Name()))
			for child := range strings.FieldsSeq(string(children)) {
				if n, err := strconv.Atoi(child); err == nil {
					all, next = append(all, n), append(next, n)
				}
			}
		}
		next = next[1:]
	}
	return all
}

// memoryOf returns the private memory of a process plus its share of shared memory, in bytes, or
// its resident memory if the kernel does not report these. It returns 0 for a process that has
// ended.
func memoryOf(pid int) int64 {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)); err == nil {
		for line := range bytes.Lines(text) {
			if fields := bytes.Fields(line); len(fields) > 1 && string(fields[0]) == "Pss:" {
				n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
				return n << 10
			}
		}
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}
