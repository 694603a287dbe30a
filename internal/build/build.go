// Package build says which build of Turnpike a process is.
package build

import (
	"runtime/debug"
	"slices"
	"strings"
	"sync"
)

// Version returns the version of the module and, for a build from a checkout, its commit:
// "v0.1.0", "(devel) 1a2b3c4d5e6f", "(devel) 1a2b3c4d5e6f modified".
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return version(info)
})

// GoVersion returns the version of Go that compiled the process.
var GoVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return "unknown"
})

func version(info *debug.BuildInfo) string {
	setting := func(key string) string {
		i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
		if i < 0 {
			return ""
		}
		return info.Settings[i].Value
	}
	text := info.Main.Version
	commit := setting("vcs.revision")
	commit = commit[:min(12, len(commit))]
	if commit != "" && !strings.Contains(text, commit) {
		text += " " + commit
		if setting("vcs.modified") == "true" {
			text += " modified"
		}
	}
	return text
}
