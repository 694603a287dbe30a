package arch

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers lists the directories of the page's sources from the lowest up. A file may import its own directory
// and lower ones; app.tsx imports any.
var layers = []string{"api", "lib", "store", "parts", "views"}

var (
	pageImport = regexp.MustCompile(`(?m)^\s*(?:import|export)\b[^;]*?\bfrom "([^"]+)"|^import "([^"]+)"`)
	pageGlobal = regexp.MustCompile(`\b(document|window|location|localStorage|sessionStorage|navigator|fetch|setTimeout|setInterval|requestAnimationFrame)\b[.(]`)
)

// pageSources returns the page's sources by their paths in web/src, without tests.
func pageSources(t *testing.T) map[string]string {
	t.Helper()
	root := "../../web/src"
	out := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".ts", ".tsx"}, path.Ext(name)) || strings.HasSuffix(name, ".test.ts") || strings.HasSuffix(name, ".d.ts") {
			return err
		}
		text, err := os.ReadFile(name)
		at, _ := filepath.Rel(root, name)
		out[filepath.ToSlash(at)] = string(text)
		return err
	})
	if err != nil || len(out) < 50 {
		t.Fatalf("%d sources of the page in %s: %v", len(out), root, err)
	}
	return out
}

// imports returns the files that a source of the page imports, and its libraries.
func imports(t *testing.T, sources map[string]string, name string) (files, libraries []string) {
	t.Helper()
	for _, m := range pageImport.FindAllStringSubmatch(sources[name], -1) {
		to := m[1] + m[2]
		if !strings.HasPrefix(to, ".") {
			libraries = append(libraries, to)
			continue
		}
		at := path.Join(path.Dir(name), to)
		switch {
		case sources[at+".ts"] != "":
			files = append(files, at+".ts")
		case sources[at+".tsx"] != "":
			files = append(files, at+".tsx")
		default:
			t.Errorf("web/src/%s imports %s, which does not exist", name, to)
		}
	}
	return files, libraries
}

// The page's sources import only lower layers, without cycles, so that each file can be read and tested with
// the layers below it. Views that are loaded on demand are not imported.
func TestPageImportsDownwards(t *testing.T) {
	t.Parallel()
	sources := pageSources(t)
	const open, closed = 1, 2
	state := map[string]int{}
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		switch state[name] {
		case closed:
			return
		case open:
			t.Errorf("web/src has an import cycle: %s", strings.Join(append(path[slices.Index(path, name):], name), " → "))
			return
		}
		state[name] = open
		files, _ := imports(t, sources, name)
		for _, to := range files {
			visit(to, append(slices.Clone(path), name))
		}
		state[name] = closed
	}
	for name := range sources {
		visit(name, nil)
		from := slices.Index(layers, strings.Split(name, "/")[0])
		files, _ := imports(t, sources, name)
		for _, to := range files {
			if down := slices.Index(layers, strings.Split(to, "/")[0]); name != "app.tsx" && down > from {
				t.Errorf("web/src/%s imports %s: %s may import itself and %s", name, to, layers[from], strings.Join(layers[:from], ", "))
			}
		}
	}
}

// Code in lib is pure: it runs in Node.js, and its result depends only on its arguments.
func TestPageLibIsPure(t *testing.T) {
	t.Parallel()
	sources := pageSources(t)
	for name, text := range sources {
		if !strings.HasPrefix(name, "lib/") {
			continue
		}
		files, libraries := imports(t, sources, name)
		for _, to := range files {
			if !strings.HasPrefix(to, "lib/") && to != "api/types.ts" {
				t.Errorf("web/src/%s imports %s: lib may import itself and api/types.ts", name, to)
			}
		}
		for _, l := range libraries {
			if l != "marked" {
				t.Errorf("web/src/%s imports %s, which is not pure", name, l)
			}
		}
		for _, line := range strings.Split(text, "\n") {
			if m := pageGlobal.FindString(line); m != "" && !strings.HasPrefix(strings.TrimSpace(line), "//") {
				t.Errorf("web/src/%s uses %s: move it to store or parts", name, m)
			}
		}
	}
}
