// Package programs makes a confinement of settings: what confines the programs of MCP tools is
// linked by the processes that start them, and by nobody else who has settings.
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

// Config returns the confinement that a worker is told. No program sees what is in the withheld
// paths.
func Config(p app.Programs, withheld ...string) standard.Confinement {
	return standard.Confinement{Mode: p.Confinement, Network: p.Network, Read: p.Read, Write: p.Write, Home: p.Home, Memory: p.MemoryMiB << 20, Withheld: withheld}
}

// Dev returns the confinement of programs that somebody starts on their own machine: where
// the settings say nothing of it they have the network, as most of them are downloaded, read
// the working directory, where they are written, and have a home below that of the data, so
// that they are downloaded once.
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

// workingDirectory is none if it is a home or has one in it: there is too much there.
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

// Finding says how programs are confined where it is asked.
func Finding(cfg standard.Confinement) state.Finding {
	f := state.Finding{Name: "MCP programs"}
	c, err := confine.New(confine.Config(cfg))
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "mend the setting named"
		return f
	}
	r := c.Report()
	f.OK, f.Detail = r.Err == nil && r.Mode != confine.Off, r.String()+"; of this machine and user, workers go by theirs"
	if !f.OK {
		f.Remedy = "docs/how-to/mcp-tools.md#confinement says what a system needs"
	}
	return f
}
