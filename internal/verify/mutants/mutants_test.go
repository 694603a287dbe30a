package main

import (
	"go/parser"
	"go/token"
	"path"
	"testing"
)

// Every planted mistake still matches the production code: a change of that code must update the mistake.
func TestMistakesCanBePlanted(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range everything() {
		if names[m.name] {
			t.Errorf("two mistakes are named %q", m.name)
		}
		names[m.name] = true
		src, err := m.apply("../../..")
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if m.run == "" {
			t.Errorf("%s: no test is named", m.name)
		}
		if path.Ext(m.file) != ".go" {
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, src, 0); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if len(names) < 60 {
		t.Errorf("%d mistakes, want at least 60", len(names))
	}
}

func everything() (all []mutant) {
	for _, g := range groups {
		all = append(all, g.mistakes...)
	}
	return all
}
