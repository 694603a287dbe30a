package gateway_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/pkg/agent"
)

// The extra bytes that opening the editor loads are bounded.
func TestEditorIsSmall(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("ui/editor-*.js")
	if err != nil || len(names) != 1 {
		t.Fatalf("editors: %v, %v", names, err)
	}
	s := hostileServer(t, gateway.Config{})
	_, size, _ := fetchPage(t, s.URL+"/"+names[0])
	if size > pageBudget {
		t.Errorf("the editor is %d bytes on the wire, at most %d are allowed", size, pageBudget)
	}
	_, _, text := fetchPage(t, s.URL+"/ui/app.js")
	if strings.Contains(text, "cm-content") {
		t.Error("the page loads the editor before it is opened")
	}
}

// The editor offers exactly the keys that a definition may have.
func TestEditorKnowsKeys(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../web/src/views/agents/keys.ts")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\bk\("(\w+)"`)
	of := map[string][]string{}
	add := func(place, text string) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			of[place] = append(of[place], m[1])
		}
	}
	for _, name := range []string{"hook", "model"} {
		if m := regexp.MustCompile(`(?s)const ` + name + ` = \[(.*?)\n\];`).FindSubmatch(source); m != nil {
			add(name, string(m[1]))
		}
	}
	for _, m := range regexp.MustCompile(`(?ms)^  "?([\w.]*)"?: \[(.*?)\],$`).FindAllSubmatch(source, -1) {
		add(string(m[1]), string(m[2]))
	}
	for place, typ := range map[string]reflect.Type{
		"": reflect.TypeFor[agent.Definition](), "model": reflect.TypeFor[agent.Model](), "loop": reflect.TypeFor[agent.Loop](), "limits": reflect.TypeFor[agent.Limits](),
		"retention": reflect.TypeFor[agent.Retention](), "compaction": reflect.TypeFor[agent.Compaction](), "hooks": reflect.TypeFor[agent.Hooks](), "hook": reflect.TypeFor[agent.Hook](),
	} {
		got, want := slices.Sorted(slices.Values(of[place])), slices.Sorted(slices.Values(keys.Of(typ)))
		if !slices.Equal(got, want) {
			t.Errorf("at %q the editor offers %v; a definition has %v", place, got, want)
		}
	}
	own := []string{"url", "method", "query", "headers", "token", "command", "env", "allow", "agent", "max_depth", "variables", "max_uses", "settings"} // of single kinds
	got, want := slices.Sorted(slices.Values(of["tools"])), slices.Sorted(slices.Values(append(own, slices.Collect(maps.Keys(keys.Types(reflect.TypeFor[agent.Tool]())))...)))
	if !slices.Equal(got, want) {
		t.Errorf("of tools the editor offers %v; a definition has %v", got, want)
	}
}
