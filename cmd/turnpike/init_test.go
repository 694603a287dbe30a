package main

import (
	"os"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A template has its own tools, so it has no language.
func TestInitOfTemplateAndLanguage(t *testing.T) {
	t.Chdir(t.TempDir())
	c := api.New("http://127.0.0.1:1")
	if _, err := says(t, c, "init", "x", "--template", "support", "--lang", "go"); err == nil || !strings.Contains(err.Error(), "--lang go and --template support") {
		t.Errorf("init says %v", err)
	}
	if text, err := says(t, c, "init", "x", "--lang", "go"); err != nil || !strings.Contains(text, "go mod edit -replace github.com/turnpike-dev/turnpike=") {
		t.Errorf("init says %s, %v", text, err)
	}
	if text, err := os.ReadFile("x/go.mod"); err != nil || !strings.Contains(string(text), "go mod edit -replace") {
		t.Errorf("go.mod: %s, %v", text, err)
	}
}
