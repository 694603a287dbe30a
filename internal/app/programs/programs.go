// Package programs makes a confinement from settings. It is a package of its own so that only
// processes that start MCP programs link the confinement.
package programs

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/pkg/standard"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config returns the confinement that a worker's settings describe. Programs cannot see the
// withheld paths.
func Config(p app.Programs, withheld ...string) standard.Confinement {
	return standard.Confinement{Mode: p.Confinement, Network: p.Network, Read: p.Read, Write: p.Write, Home: p.Home, Memory: p.MemoryMiB << 20, Withheld: withheld}
}

// Dev returns the confinement of programs on a developer's own machine. It is that of Config, with dataDir withheld too
// and with other defaults. Unless p.Network is set, programs have the network, because most are downloaded. Unless
// p.Read is set, they can read the working directory, where developers write them, unless it is or contains the
// developer's home directory. Unless p.Home is set, their home is dataDir/mcp, if dataDir exists, so that they are
// downloaded once.
func Dev(p app.Programs, dataDir string, withheld ...string) standard.Confinement {
	if p.Network == nil {
		p.Network = []string{"*"}
	}
	if p.Read == nil {
		p.Read = workingDirectory()
	}
	if _, err := os.Stat(dataDir); p.Home == "" && err == nil {
		p.Home = filepath.Join(dataDir, "mcp")
	}
	return Config(p, append(withheld, dataDir)...)
}

// workingDirectory returns the working directory, or nothing if it is or contains a home
// directory: that would expose too much.
func workingDirectory() []string {
	dir, err := os.Getwd()
	if err != nil {
		return nil
	}
	home, err := os.UserHomeDir()
	if err != nil || strings.HasPrefix(filepath.Clean(home)+"/", strings.TrimSuffix(dir, "/")+"/") {
		return nil
	}
	return []string{dir}
}

// Finding reports how the calling process confines programs.
func Finding(cfg standard.Confinement) state.Finding {
	f := state.Finding{Name: "MCP programs"}
	c, err := confine.New(confine.Config(cfg))
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "correct the setting that this finding names"
		return f
	}
	r := c.Report()
	f.OK, f.Detail = r.Err == nil && r.Mode != confine.Off, "on this machine and for this user (workers may differ): "+r.String()
	if !f.OK {
		f.Remedy = "set up confinement: docs/how-to/mcp-tools.md#confinement"
	}
	return f
}
