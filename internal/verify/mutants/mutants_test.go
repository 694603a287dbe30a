package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"strings"
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

// The page about the proofs has the numbers of planted mistakes.
func TestNumbersOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/concepts/proofs.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, want := range []string{
		fmt.Sprintf("fails unless each of the %d is found", len(everything())),
		fmt.Sprintf("plants %d bugs", len(everything())),
		fmt.Sprintf("The explorer must find %d of them", len(all)),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/concepts/proofs.md lacks %q", want)
		}
	}
}

func everything() (all []mutant) {
	for _, g := range groups {
		all = append(all, g.mistakes...)
	}
	return all
}
