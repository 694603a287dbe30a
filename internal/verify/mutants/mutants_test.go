package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// Whoever changes the code that a mistake is planted in has to say where it is now.
func TestMistakesCanBePlanted(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range all {
		src, err := m.apply("../../..")
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, src, 0); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] {
			t.Errorf("two mistakes are named %q", m.name)
		}
		names[m.name] = true
	}
	if len(names) < 15 {
		t.Errorf("%d mistakes, want at least 15", len(names))
	}
}
