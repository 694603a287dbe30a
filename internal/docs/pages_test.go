package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block is a code block of a page.
type block struct {
	at   string // page and line
	info string // the text after the fence
	text string
}

// pages returns the pages of the docs, by their paths in the repository.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CONTRIBUTING.md"}
	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if d != nil && (d.Name() == "node_modules" || d.Name() == "templates") { // for these see TestTemplates
				return fs.SkipDir
			}
			if err != nil || filepath.Ext(path) != ".md" {
				return err
			}
			name, err := filepath.Rel(root, path)
			found = append(found, filepath.ToSlash(name))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// Every code block on every page is what its mark says, and every command runs.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(page, "docs/adr/") {
			continue
		}
		blocks, err := split(page, string(text))
		if err != nil {
			t.Error(err)
		}
		if len(blocks) == 0 {
			continue
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			checkPage(t, string(text), blocks)
		})
	}
}

var (
	fence    = regexp.MustCompile("^(\\s*)```(.*)$")
	indented = regexp.MustCompile(`^(?: {4}|\t)(?:\$ )?(?:turnpike|go run|go test|make|curl|docker|export|python3) `)
)

// split returns the blocks of code of a page.
func split(page, text string) (blocks []block, err error) {
	var in *block
	var indent string
	listed := false // an indented line may go on with an item of a list
	n := 0
	for line := range strings.Lines(text) {
		n++
		m := fence.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		switch {
		case m != nil && in == nil:
			indent = m[1]
			in = &block{at: fmt.Sprintf("%s:%d", page, n), info: strings.TrimSpace(m[2])}
		case m != nil:
			blocks = append(blocks, *in)
			in = nil
		case in != nil:
			in.text += strings.TrimPrefix(line, indent)
		case indented.MatchString(line) && !listed:
			return nil, fmt.Errorf("%s:%d: commands stand in a block that begins with ```sh or ```console", page, n)
		case strings.TrimSpace(line) != "":
			listed = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `).MatchString(line) || listed && strings.HasPrefix(line, " ")
		}
	}
	if in != nil {
		return nil, fmt.Errorf("%s: the block does not end", in.at)
	}
	return blocks, nil
}

// checkPage looks at the blocks of a page, then runs its commands.
func checkPage(t *testing.T, page string, blocks []block) {
	t.Helper()
	var commands []block
	var text strings.Builder
	live := false // it needs a deployment of the test's
	for _, b := range blocks {
		switch {
		case b.info == "sh":
			commands = append(commands, b)
			text.WriteString(b.text)
		case strings.HasPrefix(b.info, "yaml"), b.info == "json run":
			live = true
		}
	}
	if len(commands) == 0 && !live {
		for _, b := range blocks {
			inspect(t, nil, b)
		}
		return
	}
	s := newSession(t, text.String())
	starts := devLine.MatchString(text.String())
	if !starts {
		s.deploy(t)
	}
	if len(commands) > 0 {
		printed := s.run(t, commands)
		if !starts { // else it may have ended its own
			s.failures(t, page, printed)
		}
	}
	for _, b := range blocks {
		inspect(t, s, b)
	}
}
