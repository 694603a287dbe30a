package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/turnpike-dev/turnpike/examples/tools"
)

// initCmd writes what a first agent needs.
type initCmd struct {
	Dir string `arg:"" optional:"" default:"." help:"Folder; created if it does not exist."`
}

const firstAgent = `# An agent. Its model is scripted: the answers stand here, and cost nothing. With a key, replace the
# model by {provider: anthropic, name: claude-haiku-4-5} or {provider: openai, name: gpt-5-mini}, and
# export ANTHROPIC_API_KEY or OPENAI_API_KEY before you start turnpike dev.
name: converter
instructions: Convert quantities with the tool convert.
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: convert, arguments: {value: 100, from: km, to: mi}}]}
    - {text: 100 km are 62.1 miles.}
tools:
  # A service on NATS: tools/convert.py says itself what it does and what it takes. approval: always
  # would ask a person before each call.
  - {name: convert, kind: nats, idempotent: true, timeout: 30s}
`

func (c *initCmd) Run(e *env) error {
	files := map[string]string{filepath.Join("agents", "converter.yaml"): firstAgent}
	for _, name := range []string{"convert.py", "mininats.py"} {
		text, err := fs.ReadFile(tools.Python, "python/"+name)
		if err != nil {
			return err
		}
		files[filepath.Join("tools", name)] = string(text)
	}
	for name := range files {
		if _, err := os.Lstat(filepath.Join(c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		} else if err == nil {
			return fmt.Errorf("%s is there: name another folder, or move it away; nothing was written", filepath.Join(c.Dir, name))
		}
	}
	for name, text := range files {
		path := filepath.Join(c.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	enter := ""
	if c.Dir != "." {
		enter = "  cd " + c.Dir + "\n"
	}
	_, err := fmt.Fprint(e.out, `wrote agents/converter.yaml, tools/convert.py and tools/mininats.py. Next, each in a terminal of its own:

`+enter+`  turnpike dev --agents agents        # a whole deployment; agents are read again when you save them
  python3 tools/convert.py            # the tool; Python 3.11 or later
  turnpike run converter "How far is 100 km in miles?"
  turnpike open                       # the page
`)
	return err
}

// openCmd opens the page in the user's browser.
type openCmd struct {
	ID    string `arg:"" optional:"" complete:"run" help:"Run id."`
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
		fmt.Fprintf(e.errs, "no browser was opened (%v): open the address yourself\n", err)
	}
	return nil
}
