package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Every variable, metric and flag that users see is in the docs.
func TestNamesAreDocumented(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what, source, name string
		pages              []string
	}{
		{"variable", "internal/app cmd", `env:"(TURNPIKE_\w+)"`, []string{"settings.md"}},
		{"metric", "internal/worker internal/engine internal/service internal/gateway", `"(turnpike_[a-z_]+)"`, []string{"metrics.md", "rate-limits.md"}},
		{"finding", "internal/doctor internal/app cmd/turnpike pkg/bus/natsbus pkg/state", `Finding\{+\s*Name: +(?:fmt\.Sprintf\()?"([a-zA-Z]+(?::? [a-zA-Z_ -]*[a-zA-Z])?)`, []string{"doctor.md"}},
		{"key of an agent", "pkg/agent/definition.go pkg/agent/settings.go pkg/budget/tokens.go", `json:"(\w+)`, []string{"agents.md", "models.md", "loops.md", "hooks.md", "mcp-tools.md"}},
	} {
		var docs strings.Builder
		for _, p := range pages(t) {
			if slices.Contains(test.pages, path.Base(p.name)) {
				docs.WriteString(p.text)
			}
		}
		found := 0
		for _, root := range strings.Fields(test.source) {
			err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				b, err := os.ReadFile(path)
				for _, m := range regexp.MustCompile(test.name).FindAllSubmatch(b, -1) {
					found++
					if !regexp.MustCompile(`\b` + string(m[1]) + `\b`).MatchString(docs.String()) {
						t.Errorf("%s: the %s %s of %s is missing", strings.Join(test.pages, ", "), test.what, m[1], path)
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if found == 0 {
			t.Errorf("no %s found in %s", test.what, test.source)
		}
	}
}

// page is a page of the docs, named relative to the root of the repository.
type page struct {
	name, text string
}

func pages(t *testing.T) []page {
	t.Helper()
	root := os.DirFS("../..")
	names := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	err := fs.WalkDir(root, "docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var list []page
	for _, name := range names {
		b, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, page{name, string(b)})
	}
	return list
}

// prose returns the lines of a page, empty where they are code.
func (p page) prose() []string {
	lines := strings.Split(p.text, "\n")
	fence := ""
	for i, line := range lines {
		switch mark := strings.TrimLeft(line, " "); {
		case fence != "":
			if strings.HasPrefix(mark, fence) {
				fence = ""
			}
			lines[i] = ""
		case strings.HasPrefix(mark, "```"):
			fence = mark[:len(mark)-len(strings.TrimLeft(mark, "`"))]
			lines[i] = ""
		case strings.HasPrefix(line, "    ") && (i == 0 || lines[i-1] == ""):
			lines[i] = ""
		}
	}
	return lines
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchorPunct    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	headingPattern = regexp.MustCompile(`^#+ (.*)`)
)

// links returns the targets of a page inside the repository: a file, and an anchor.
func (p page) links() (targets [][2]string) {
	for _, m := range linkPattern.FindAllStringSubmatch(strings.Join(p.prose(), "\n"), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		name := p.name
		if file != "" {
			name = path.Join(path.Dir(p.name), file)
		}
		targets = append(targets, [2]string{name, anchor})
	}
	return targets
}

// anchors returns the anchors of the page's headings, as GitHub generates them.
func (p page) anchors() map[string]bool {
	list := map[string]bool{}
	for _, line := range p.prose() {
		if m := headingPattern.FindStringSubmatch(line); m != nil {
			text := strings.ReplaceAll(linkPattern.ReplaceAllString(m[1], ""), "`", "")
			name := strings.ReplaceAll(anchorPunct.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
			for anchor, n := name, 1; ; n++ {
				if !list[anchor] {
					list[anchor] = true
					break
				}
				anchor = fmt.Sprintf("%s-%d", name, n)
			}
		}
	}
	return list
}

// The architecture's table of packages has all that stand on a floor.
func TestPackagesAreDescribedInOnePlace(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/concepts/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(floors...) {
		if strings.HasPrefix(name, "pkg/") && !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/concepts/architecture.md does not say what %s is for", name)
		}
	}
}

// Links lead to a file and a heading that are there.
func TestLinks(t *testing.T) {
	t.Parallel()
	anchors := map[string]map[string]bool{}
	for _, p := range pages(t) {
		anchors[p.name] = p.anchors()
	}
	for _, p := range pages(t) {
		for _, l := range p.links() {
			if _, err := os.Stat(filepath.Join("../..", l[0])); err != nil {
				t.Errorf("%s points at %s, which does not exist", p.name, l[0])
			} else if known, ok := anchors[l[0]]; l[1] != "" && ok && !known[l[1]] {
				t.Errorf("%s points at %s#%s, a heading that does not exist", p.name, l[0], l[1])
			}
		}
	}
}

// Each page of the docs can be found from their index.
func TestPagesAreReachable(t *testing.T) {
	t.Parallel()
	byName := map[string]page{}
	for _, p := range pages(t) {
		byName[p.name] = p
	}
	seen, todo := map[string]bool{}, []string{"docs/README.md"}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		p, ok := byName[name]
		if seen[name] || !ok {
			continue
		}
		seen[name] = true
		for _, l := range p.links() {
			if strings.HasPrefix(l[0], "docs/") {
				todo = append(todo, l[0])
			}
		}
	}
	for name := range byName {
		if strings.HasPrefix(name, "docs/") && !seen[name] {
			t.Errorf("no link leads from docs/README.md to %s", name)
		}
	}
}

// strict reports whether a page follows the rules of form: all do, except the changelog.
func (p page) strict() bool { return p.name != "CHANGELOG.md" }

// A decision is one page: title, status and date, then a paragraph with the decision before the
// first heading. The index has its number, title and date.
func TestDecisions(t *testing.T) {
	t.Parallel()
	const dir, maxLines = "docs/adr/", 60
	index, rows := "", 0
	var decisions []page
	for _, p := range pages(t) {
		switch {
		case p.name == dir+"README.md":
			index = p.text
			rows = len(regexp.MustCompile(`(?m)^\| \d+ \|`).FindAllString(index, -1))
		case strings.HasPrefix(p.name, dir):
			decisions = append(decisions, p)
		}
	}
	if len(decisions) != rows || rows == 0 {
		t.Errorf("the index has %d decisions, and there are %d", rows, len(decisions))
	}
	form := regexp.MustCompile(`^# (\d+)\. (.+)\n\n\*\*Status:\*\* (accepted)[^·#]* · \*\*Date:\*\* (\d{4}-\d\d-\d\d)\n\n[^#\n]`)
	for _, p := range decisions {
		if n := strings.Count(p.text, "\n"); n > maxLines {
			t.Errorf("%s has %d lines, at most %d are allowed", p.name, n, maxLines)
		}
		m := form.FindStringSubmatch(p.text)
		if m == nil {
			t.Errorf("%s does not begin with number, title, status, date and decision", p.name)
			continue
		}
		n, _ := strconv.Atoi(m[1])
		if file := path.Base(p.name); !strings.HasPrefix(file, fmt.Sprintf("%04d-", n)) {
			t.Errorf("%s is decision %d", p.name, n)
		}
		row := fmt.Sprintf("| %d | [%s](%s) | %s | %s |\n", n, m[2], path.Base(p.name), m[3], m[4])
		if !strings.Contains(index, row) {
			t.Errorf("%sREADME.md lacks this row:\n%s", dir, row)
		}
	}
}

// Lines end at 120 characters and paragraphs have at most 80 words: tables and code aside.
func TestForm(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		if !p.strict() {
			continue
		}
		words, begin := 0, 0
		item := regexp.MustCompile(`^\s*([-*]|\d+\.) `)
		for i, line := range append(p.prose(), "") {
			table := strings.HasPrefix(line, "|")
			if n := utf8.RuneCountInString(line); n > 120 && !table {
				t.Errorf("%s:%d has %d characters, at most 120 are allowed", p.name, i+1, n)
			}
			if line == "" || table || item.MatchString(line) || headingPattern.MatchString(line) {
				if words > 80 {
					t.Errorf("%s:%d: a paragraph of %d words, at most 80 are allowed", p.name, begin, words)
				}
				words, begin = 0, i+1
			}
			if !table {
				words += len(strings.Fields(linkPattern.ReplaceAllString(line, "]")))
			}
		}
	}
}
