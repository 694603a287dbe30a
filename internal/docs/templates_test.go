package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files of `turnpike init --template` work as their README says.
func TestTemplates(t *testing.T) {
	t.Parallel()
	for name, says := range map[string][]string{
		"chat":     {"Hello, how can I help?", "accepted"},
		"extract":  {`"total": 240`, "2 of 2"},
		"report":   {"schedule daily fires next", "run_"},
		"research": {"Both contain caffeine", "completed"},
		"support":  {"240 euros are on their way", "Please do not send card numbers."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := "examples/templates/" + name + "/README.md"
			text, err := os.ReadFile(filepath.Join(root, page))
			if err != nil {
				t.Fatal(err)
			}
			blocks, err := split(page, string(text))
			if err != nil || len(blocks) != 1 || !strings.Contains(blocks[0].text, "turnpike init --template "+name+" ") {
				t.Fatalf("%d blocks, %v: want one that begins with turnpike init --template %s", len(blocks), err, name)
			}
			s := newSession(t, blocks[0].text)
			s.deploy(t)
			printed := s.run(t, blocks)
			for _, want := range says {
				if !strings.Contains(printed, want) {
					t.Errorf("the commands do not print %q:\n%s", want, printed)
				}
			}
			agents, err := os.ReadDir(filepath.Join(root, "examples/templates", name, "agents"))
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range agents {
				if !strings.Contains(blocks[0].text, a.Name()) {
					t.Errorf("the commands do not save %s", a.Name())
				}
			}
		})
	}
}
