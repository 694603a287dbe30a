package arch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What users set and watch stands in the docs.
func TestNamesAreDocumented(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what, source, name string
		pages              []string
	}{
		{"variable", "internal/app cmd", `env:"(TURNPIKE_\w+)"`, []string{"reference/cli.md"}},
		{"metric", "pkg/worker pkg/gateway", `"(turnpike_[a-z_]+)"`, []string{"reference/traces.md", "how-to/rate-limits.md"}},
		{"key of an agent", "pkg/agent/definition.go pkg/agent/settings.go pkg/budget/tokens.go", `json:"(\w+)`, []string{"reference/agents.md", "reference/models.md", "reference/loops.md", "how-to/hooks.md", "how-to/mcp-tools.md"}},
	} {
		var docs strings.Builder
		for _, page := range test.pages {
			b, err := os.ReadFile(filepath.Join("../../docs", page))
			if err != nil {
				t.Fatal(err)
			}
			docs.Write(b)
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
						t.Errorf("docs/%s: the %s %s of %s is missing", strings.Join(test.pages, ", "), test.what, m[1], path)
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

// No page of the docs points at a file that is not there.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	pages := []string{"../../README.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md"}
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s points at %s, which is not there", page, m[1])
			}
		}
	}
}
