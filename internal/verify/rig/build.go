package rig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Module is the path that the packages of this module begin with, and ServerNATS
// the command of a NATS server.
const (
	Module     = "github.com/turnpike-dev/turnpike/"
	ServerNATS = "github.com/nats-io/nats-server/v2"
)

// Build compiles commands, named by their import paths, into dir; those of this
// module with the race detector if wanted. Packages whose tests need the same command
// link it once: it stays in .bin/built of the checkout.
func Build(ctx context.Context, dir string, race bool, commands ...string) error {
	root, err := look()
	if err != nil {
		return err
	}
	for _, pkg := range commands {
		if err := build(ctx, root, dir, pkg, race && strings.HasPrefix(pkg, Module)); err != nil {
			return err
		}
	}
	return nil
}

func build(ctx context.Context, root, dir, pkg string, race bool) error {
	// The commands are not debugged, and they link faster without debug information.
	args, kept := []string{"build", "-ldflags=-s -w"}, strings.ReplaceAll(strings.TrimPrefix(pkg, Module), "/", "_")
	if race {
		args, kept = append(args, "-race"), kept+"-race"
	}
	kept = filepath.Join(root, ".bin", "built", kept)
	if err := os.MkdirAll(kept, 0o755); err != nil { //nolint:gosec // programs that anyone may read
		return err
	}
	folder, err := os.Open(kept) //nolint:gosec // in the checkout
	if err != nil {
		return err
	}
	defer folder.Close()                                                     // this unlocks it
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil { //nolint:gosec // a descriptor is small
		return fmt.Errorf("lock %s: %w", kept, err)
	}
	// go build leaves a program alone that is up to date.
	args = append(args, "-o", kept+string(filepath.Separator), pkg)
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // only our own arguments
	if race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // the race detector is written in C
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.CopyFS(dir, os.DirFS(kept))) //nolint:gosec // as above
}

// look reads the directories of the module and returns the uppermost. The test cache tracks the files that a
// test reads, but not those that a compiler reads for it: without this, a test of a changed command would have
// its old result.
func look() (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return "", errors.New("no go.mod: commands are built inside the module")
		}
		root = filepath.Dir(root)
	}
	return root, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "docs") {
			return fs.SkipDir
		}
		return err
	})
}
