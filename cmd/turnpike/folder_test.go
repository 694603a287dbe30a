package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A deployment that restarts with the same files keeps the same versions.
func TestUnchangedFilesKeepTheirVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := folder{dir: dir, tenant: "default", store: memstore.New(memstore.Config{})}
	for i, c := range []struct {
		text    string
		version int
	}{{"hi", 1}, {"hi", 1}, {"ho", 2}, {"ho", 2}} {
		path := filepath.Join(dir, "a.yaml")
		if err := os.WriteFile(path, []byte("name: a\nmodel: {provider: scripted, responses: [{text: "+c.text+"}]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if v, err := f.put(t.Context(), path); err != nil || v.Version != c.version {
			t.Errorf("start %d with %q: version %d, %v, want %d", i, c.text, v.Version, err, c.version)
		}
	}
}
