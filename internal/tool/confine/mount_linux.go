package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount creates a file system with only the shown paths, and makes it the root.
func (o order) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// base is the mount point of a temporary root, which has the host's root at /old and the
	// program's at /new. /proc exists on every system, even on those without other
	// directories.
	const base = "/proc"
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", base, err)
	}
	for _, dir := range []string{"/old", "/new"} {
		if err := os.Mkdir(base+dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.PivotRoot(base, base+"/old"); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/new", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=755"); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	for _, e := range o.View {
		if err := o.show(e); err != nil {
			return fmt.Errorf("show %s: %w", e.Path, err)
		}
	}
	if err := o.special(); err != nil {
		return err
	}
	return o.enter()
}

// show mounts one entry below the new root.
func (o order) show(e entry) error {
	at, from := "/new"+e.Path, "/old"+e.Source
	if e.Access == temporary {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		return unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=1777", o.Memory))
	}
	info, err := os.Stat(from)
	if os.IsNotExist(err) {
		return nil // it was deleted just now
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
		if _, there := os.Lstat(at); os.IsNotExist(there) {
			err = os.WriteFile(at, nil, 0o444) //nolint:gosec // a mount point
		}
	}
	if err != nil {
		return err
	}
	switch {
	case e.Access == withheld && info.IsDir():
		// Shown paths inside it are mounted below it later.
		return unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,mode=755")
	case e.Access == withheld:
		from = "/old/dev/null"
	}
	return bind(from, at, e.Access == readWrite)
}

// bind mounts from at another path, with all mounts below it, without set-user-ID programs, and without devices unless
// from is below /old/dev. If write is false, the mount is read-only.
func bind(from, at string, write bool) error {
	if err := unix.Mount(from, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if strings.HasPrefix(from, "/old/dev/") {
		attr = unix.MOUNT_ATTR_NOSUID
	}
	if !write {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	return unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr})
}

// special creates /proc and /dev.
func (o order) special() error {
	for _, dir := range []string{"/new/proc", "/new/dev"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", "/new/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// In new namespaces a program would have capabilities again.
	if err := os.WriteFile("/new/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return fmt.Errorf("forbid further namespaces: %w", err)
	}
	if err := boundProcesses(); err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/new/proc", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make /proc read-only: %w", err)
	}
	for _, device := range devices {
		if err := os.WriteFile("/new"+device, nil, 0o666); err != nil { //nolint:gosec // a mount point
			return err
		}
		if err := bind("/old"+device, "/new"+device, true); err != nil {
			return fmt.Errorf("show %s: %w", device, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "shm": "/tmp"} {
		if err := os.Symlink(to, "/new/dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

// boundProcesses limits the processes of the namespace if this process is root, to whom the limit of the user does not
// apply. It does nothing before Linux 6.14, where the number would apply to the whole system.
func boundProcesses() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil || os.Getuid() != 0 || !atLeast(unix.ByteSliceToString(u.Release[:]), 6, 14) {
		return err
	}
	if err := os.WriteFile("/new/proc/sys/kernel/pid_max", []byte(strconv.Itoa(maxProcesses)), 0); err != nil {
		return fmt.Errorf("bound processes: %w", err)
	}
	return nil
}

// atLeast reports whether the release of a kernel is that version or newer.
func atLeast(release string, major, minor int) bool {
	var a, b int
	_, err := fmt.Sscanf(release, "%d.%d", &a, &b)
	return err == nil && (a > major || a == major && b >= minor)
}

// enter makes /new the root, and unmounts the other file systems.
func (o order) enter() error {
	if err := os.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	for _, e := range o.View {
		if e.Access != withheld {
			continue
		}
		if info, err := os.Stat(e.Path); err == nil && info.IsDir() {
			if err := unix.MountSetattr(unix.AT_FDCWD, e.Path, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
				return fmt.Errorf("hide %s: %w", e.Path, err)
			}
		}
	}
	return nil
}
