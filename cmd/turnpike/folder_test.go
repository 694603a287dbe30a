package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
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

// messages is a text that one goroutine writes and another reads.
type messages struct {
	mu   sync.Mutex
	text strings.Builder
}

func (m *messages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.Write(b)
}

func (m *messages) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

// A saved file is stored, however the editor saves it: written in place, or renamed from a temporary file. An invalid
// file and a reference to something missing are reported; other files, files that are gone and saves without a change
// are not.
func TestWatchStoresSavedFiles(t *testing.T) {
	t.Parallel()
	out, store := &messages{}, memstore.New(memstore.Config{})
	f := folder{dir: t.TempDir(), tenant: "default", store: store, out: out, finder: &lookup.Finder{Agents: store}}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := f.watch(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); watching.Wait() })

	path := func(name string) string { return filepath.Join(f.dir, name) }
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "temporary")
	rename := func(name, text string) {
		t.Helper()
		write(elsewhere, text)
		if err := os.Rename(elsewhere, path(name)); err != nil {
			t.Fatal(err)
		}
	}
	define := func(name, says string) string {
		return fmt.Sprintf("{name: %s, model: {provider: scripted, responses: [{text: %s}]}}", name, says)
	}
	await := func(text string) {
		t.Helper()
		testbed.Eventually(t, "the messages", func() error {
			if got := out.String(); !strings.Contains(got, text) {
				return fmt.Errorf("no %q in %q", text, got)
			}
			return nil
		})
	}

	// Nobody says when the directory is watched, so the first file is saved until that is seen.
	var again time.Time
	testbed.Eventually(t, "the first file", func() error {
		if time.Now().After(again) {
			again = time.Now().Add(2 * settled)
			rename("a.yaml", define("a", "hi"))
		}
		if got, want := out.String(), "a version 1, from "+path("a.yaml")+"\n"; got != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})

	write(path("a.yaml"), define("a", "ho"))
	rename("b.yml", "{name: b, model: {provider: scripted}, tools: [{name: nobody, kind: agent, agent: missing}]}")
	rename("c.json", `{"name": "c", "model": {"provider": "scripted"}}`)
	rename("invalid.yaml", "name: [")
	rename("notes.txt", "name: [")
	rename("gone.yaml", define("gone", "hi"))
	if err := os.Remove(path("gone.yaml")); err != nil {
		t.Fatal(err)
	}
	await("a version 2, from " + path("a.yaml") + "\n")
	await("b version 1, from " + path("b.yml") + "\n" + path("b.yml") + ":1:")
	await("c version 1, from " + path("c.json") + "\n")
	await("the agent in " + path("invalid.yaml") + " is not stored")

	rename("a.yaml", define("a", "ho"))
	rename("d.yaml", define("d", "hi"))
	await("d version 1, from ")
	rename("e.yaml", define("e", "hi"))
	await("e version 1, from ") // so all messages about the files before it are there
	for text, want := range map[string]int{
		"a version": 2, path("invalid.yaml") + " is not stored": 1, path("gone.yaml") + " is not stored": 0, path("notes.txt"): 0,
	} {
		if n := strings.Count(out.String(), text); n != want {
			t.Errorf("%q is there %d times, want %d, in\n%s", text, n, want, out.String())
		}
	}
}
