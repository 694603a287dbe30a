package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/clients"
	"github.com/turnpike-dev/turnpike/examples/start"
	"github.com/turnpike-dev/turnpike/examples/templates"
)

// initCmd creates a directory with a first agent and its tool.
type initCmd struct {
	Dir  string `arg:"" optional:"" default:"." help:"Folder; created if it does not exist."`
	Lang string `enum:",python,typescript,go" default:"" help:"Language of the tool: python (default), typescript or go." placeholder:"NAME"`

	Template string `enum:",chat,extract,report,research,support" default:"" help:"A starting point for one kind of work instead: chat, extract, report, research or support." placeholder:"NAME"`
}

// goModule is the go.mod of a tool in Go.
const goModule = `module converter

// The module of Turnpike is that of a release. To use a checkout of the repository instead:
//	go mod edit -replace ` + turnpikeModule + `=/path/to/turnpike

go 1.26.0
`

const turnpikeModule = "github.com/turnpike-dev/turnpike"

// starts has, by language, the first command of the tool and what the command needs.
var starts = map[string][2]string{
	"python":     {"python3 tools/convert.py", "the tool; Python 3.11 or later"},
	"typescript": {"npm install && npm start", "the tool; Node.js 18.19 or later"},
	"go":         {"go mod tidy && go run ./tools", "the tool"},
}

func (c *initCmd) Run(e *env) error {
	if c.Lang != "" && c.Template != "" {
		return usagef("--lang %s and --template %s are both given, and a template has its own tools: give one of them", c.Lang, c.Template)
	}
	c.Lang = cmp.Or(c.Lang, "python")
	files, err := c.files()
	if c.Template != "" {
		files, err = c.template()
	}
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		} else if err == nil {
			return fmt.Errorf("%s exists already, so nothing was written: name another folder, or move this file away", filepath.Join(c.Dir, name))
		}
	}
	for _, name := range names {
		to := filepath.Join(c.Dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, files[name], 0o600); err != nil {
			return err
		}
	}
	enter := ""
	if c.Dir != "." {
		enter = "  cd " + c.Dir + "\n"
	}
	if c.Template != "" {
		_, err = fmt.Fprintf(e.out, "wrote %d files. Start turnpike dev, then see %s for the commands to try\n", len(files), filepath.Join(c.Dir, "README.md"))
		return err
	}
	tool := starts[c.Lang]
	_, err = fmt.Fprintf(e.out, `wrote agents/converter.yaml and a tool in the folder tools. Next, each in a terminal of its own:

%s  turnpike dev --agents agents        # a whole deployment; agents are read again when you save them
  %-35s # %s
  turnpike run converter "How far is 100 km in miles?"
  turnpike open                       # the page
`, enter, tool[0], tool[1])
	if c.Lang == "go" {
		_, err = fmt.Fprintf(e.out, `
Before the tool, if you use a checkout of Turnpike instead of a release:

  go mod edit -replace %s=/path/to/turnpike
`, turnpikeModule)
	}
	return err
}

// files returns the contents of the files by their paths in the directory: an agent, a tool, and the client that the
// tool needs, so that the first tool runs without published packages.
func (c *initCmd) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	add := func(from fs.FS, dir, to string) error {
		entries, err := fs.ReadDir(from, dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			in := to
			if filepath.Ext(entry.Name()) == ".json" {
				in = "" // npm reads it in the top directory
			}
			if files[filepath.Join(in, entry.Name())], err = fs.ReadFile(from, path.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
		return nil
	}
	err := errors.Join(add(start.Files, "agents", "agents"), add(start.Files, c.Lang, "tools"))
	switch c.Lang {
	case "python":
		err = errors.Join(err, add(clients.Python, "python/turnpike", filepath.Join("tools", "turnpike")))
	case "typescript":
		err = errors.Join(err, add(clients.TypeScript, "typescript/src", filepath.Join("tools", "turnpike")))
	default:
		files["go.mod"] = []byte(goModule)
	}
	return files, err
}

// template returns the files of a template, with the client that its tools need.
func (c *initCmd) template() (map[string][]byte, error) {
	files := map[string][]byte{}
	add := func(from fs.FS, dir, to string) error {
		return fs.WalkDir(from, dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(from, name)
			files[filepath.Join(to, filepath.FromSlash(strings.TrimPrefix(name, dir+"/")))] = data
			return err
		})
	}
	err := add(templates.Files, c.Template, "")
	for name := range files {
		if filepath.Ext(name) == ".py" {
			return files, errors.Join(err, add(clients.Python, "python/turnpike", filepath.Join("tools", "turnpike")))
		}
	}
	return files, err
}

// openCmd opens the page in the user's browser.
type openCmd struct {
	ID    string `arg:"" optional:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	Print bool   `help:"Only print the address."`
}

func (c *openCmd) Run(e *env) error {
	address := strings.TrimRight(e.server, "/") + "/ui/"
	if c.ID != "" {
		address += "#" + url.PathEscape(c.ID)
		if _, err := e.client.Get(e.ctx, c.ID); err != nil {
			return err
		}
	}
	if err := e.print(map[string]string{"url": address}, address); err != nil || c.Print || !e.terminal {
		return err
	}
	opener := map[string]string{"darwin": "open", "windows": "explorer"}[runtime.GOOS]
	if opener == "" {
		opener = "xdg-open"
	}
	if err := exec.CommandContext(e.ctx, opener, address).Run(); err != nil {
		fmt.Fprintf(e.errs, "could not open a browser (%v): open the address above yourself\n", err)
	}
	return nil
}
