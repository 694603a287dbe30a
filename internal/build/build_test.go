package build

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	const commit = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
	built := func(version string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	for want, info := range map[string]*debug.BuildInfo{
		"v0.1.0":                        built("v0.1.0"),
		"(devel) 1a2b3c4d5e6f":          built("(devel)", "vcs.revision", commit, "vcs.modified", "false"),
		"(devel) 1a2b3c4d5e6f modified": built("(devel)", "vcs.revision", commit, "vcs.modified", "true"),
		"v0.0.0-2026-1a2b3c4d5e6f":      built("v0.0.0-2026-1a2b3c4d5e6f", "vcs.revision", commit),
	} {
		if got := version(info); got != want {
			t.Errorf("version = %q, want %q", got, want)
		}
	}
}
