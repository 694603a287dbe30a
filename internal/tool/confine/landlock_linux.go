package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// minLandlock is the first version of Landlock that prevents a program from truncating files that it may not write.
const minLandlock = 3

// landlocked returns nil if this system has Landlock, or else the reason.
func landlocked() error {
	version, err := ll.LandlockGetABIVersion()
	if err != nil {
		return fmt.Errorf("the kernel does not offer it: %w", err)
	}
	if version < minLandlock {
		return fmt.Errorf("the kernel has version %d of Landlock, the minimum is %d: use Linux 6.2 or later", version, minLandlock)
	}
	if machine == 0 {
		return errors.New("no filter of system calls for " + runtime.GOARCH)
	}
	return nil
}

// landlock restricts this process to the files that the order names.
func (o order) landlock() error {
	rules := []landlock.Rule{landlock.RODirs("/proc"), landlock.RWFiles(devices...)}
	for _, e := range visible(o.View) {
		info, err := os.Stat(e.Path)
		switch {
		case err != nil:
			continue
		case e.Access == readWrite && info.IsDir():
			rules = append(rules, landlock.RWDirs(e.Path))
		case e.Access == readWrite:
			rules = append(rules, landlock.RWFiles(e.Path))
		case info.IsDir():
			rules = append(rules, landlock.RODirs(e.Path))
		default:
			rules = append(rules, landlock.ROFiles(e.Path))
		}
	}
	if err := landlock.V9.BestEffort().RestrictPaths(rules...); err != nil {
		return err
	}
	return landlock.V9.BestEffort().RestrictScoped()
}

// visible returns the shown paths, split so that no path has a withheld one below it: Landlock cannot withdraw a part
// of what it grants.
func visible(view []entry) []entry {
	var shown, split []entry
	var hide []string
	for _, e := range view {
		if e.Access == withheld {
			hide = append(hide, e.Source)
		}
	}
	for split = slices.Clone(view); len(split) > 0; {
		e := split[0]
		split = split[1:]
		under := func(h string) bool { return within(e.Source, h) }
		above := func(h string) bool { return within(h, e.Source) }
		switch {
		case e.Access == withheld || slices.ContainsFunc(hide, under) && !slices.Contains(view, e):
		case slices.ContainsFunc(hide, above) && !slices.ContainsFunc(hide, under):
			names, _ := os.ReadDir(e.Source)
			for _, n := range names {
				path := filepath.Join(e.Source, n.Name())
				split = append(split, entry{path, path, e.Access})
			}
		default:
			shown = append(shown, e)
		}
	}
	return shown
}
