package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// controllers are the cgroup controllers that limit a program.
var controllers = []string{"memory", "pids"}

// cgroup is a directory in which this process may create groups.
type cgroup struct{ dir string }

// delegated returns the cgroup that this process may divide, such as one from systemd with Delegate=. The error says
// why it has none.
func delegated() (*cgroup, error) {
	own, err := ownGroup()
	if err != nil {
		return nil, err
	}
	// With DelegateSubgroup=, the delegated group is the parent of the group of this process.
	for _, dir := range []string{own, filepath.Dir(own)} {
		if !given(dir) {
			continue
		}
		if lists(dir, "cgroup.subtree_control") {
			return swept(dir)
		}
		if dir != own || !lists(dir, "cgroup.controllers") {
			continue
		}
		if err := divide(dir); err != nil {
			return nil, err
		}
		return swept(dir)
	}
	return nil, errors.New("no cgroup is delegated")
}

// ownGroup returns the directory of this process's group.
func ownGroup() (string, error) {
	const root = "/sys/fs/cgroup"
	var s unix.Statfs_t
	if err := unix.Statfs(root, &s); err != nil || s.Type != unix.CGROUP2_SUPER_MAGIC {
		return "", errors.New("no cgroups of version 2")
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join(root, path), nil
		}
	}
	return "", errors.New("no cgroups of version 2")
}

// given reports whether a group was delegated to this process: systemd marks it, and in a container it is the root.
func given(dir string) bool {
	mark := make([]byte, 8)
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, mark); err == nil && string(mark[:n]) == "1" {
			return true
		}
	}
	// The root of the whole system has no type.
	return dir == "/sys/fs/cgroup" && !missing(dir+"/cgroup.type") && unix.Access(dir, unix.W_OK) == nil
}

// lists reports whether a file of a group names all controllers.
func lists(dir, file string) bool {
	text, err := os.ReadFile(filepath.Join(dir, file))
	has := strings.Fields(string(text))
	return err == nil && !slices.ContainsFunc(controllers, func(c string) bool { return !slices.Contains(has, c) })
}

// divide moves this process to a new group in dir, because a group with processes cannot be divided, and delegates the
// controllers to the groups in dir.
func divide(dir string) error {
	leaf := filepath.Join(dir, "worker")
	if err := os.Mkdir(leaf, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	if err := put(leaf, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	if err := put(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +")); err != nil {
		return errors.Join(fmt.Errorf("the cgroup has other processes: %w", err), put(dir, "cgroup.procs", strconv.Itoa(os.Getpid())), os.Remove(leaf))
	}
	return nil
}

// swept returns the group at dir, after removing empty groups that earlier workers have left.
func swept(dir string) (*cgroup, error) {
	left, _ := filepath.Glob(filepath.Join(dir, "mcp-*"))
	for _, d := range left {
		_ = os.Remove(d) // fails for a group that is in use
	}
	return &cgroup{dir}, nil
}

// make creates the group number n for a program with a memory limit in bytes. remove kills all processes in the group
// and removes it.
func (g *cgroup) make(n, memory int64) (_ *os.File, remove func(), err error) {
	dir := filepath.Join(g.dir, fmt.Sprintf("mcp-%d-%d", os.Getpid(), n))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make a cgroup: %w", err)
	}
	remove = func() {
		_ = put(dir, "cgroup.kill", "1")
		_ = os.Remove(dir)
	}
	err = errors.Join(put(dir, "memory.max", strconv.FormatInt(memory, 10)), put(dir, "memory.oom.group", "1"), put(dir, "pids.max", strconv.Itoa(maxProcesses)))
	if !missing(dir + "/memory.swap.max") {
		err = errors.Join(err, put(dir, "memory.swap.max", "0"))
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(dir)
	}
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("make a cgroup: %w", err)
	}
	return f, remove, nil
}

func put(dir, file, value string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(value), 0) //nolint:gosec // the file exists
}
