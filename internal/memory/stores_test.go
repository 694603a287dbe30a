package memory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// Redis and NATS accept the longest scope and the largest memory: a subject that is too long, or a message that
// is too large, would cost a worker its connection.
func TestLargestMemory(t *testing.T) {
	t.Parallel()
	prefix := "t-" + strings.ToLower(ulid.Make().String())
	redis, err := redisstore.Open(t.Context(), redisstore.Config{URL: testbed.Redis(t), Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	nc := testbed.NATS(t)
	nats, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nats.Close() })
	key := strings.Repeat("ключ", 16) // 128 bytes
	scope, err := memory.ScopeOf("metadata."+key, "acme", "a", map[string]string{key: strings.Repeat("*>. ", memory.MaxValue/4)})
	if err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]memory.Documents{"Redis": redis, "NATS": nats} {
		memories := memory.New(store)
		for _, content := range []string{strings.Repeat(`"`, memory.MaxBytes-20), strings.Repeat("<", 120<<10)} {
			err := memories.Change(t.Context(), scope, func(d *memory.Directory) error {
				return d.Put("/memories/a", memory.File{Content: content}, memory.MaxBytes)
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if d, err := memories.Read(t.Context(), scope); err != nil || d.Files["/memories/a"].Content != content {
				t.Errorf("%s returned another content, %v", name, err)
			}
		}
		if names, err := memories.Scopes(t.Context(), "acme"); err != nil || len(names) != 1 || names[0] != scope.Name {
			t.Errorf("%s: Scopes = %q, %v", name, names, err)
		}
		if found, err := memories.Erase(t.Context(), scope); err != nil || !found {
			t.Errorf("%s: Erase = %v, %v", name, found, err)
		}
	}
}

// A memory keeps the keys of its latest 512 changes, and no more.
func TestKeysOfManyChanges(t *testing.T) {
	t.Parallel()
	d := &memory.Directory{Files: map[string]memory.File{}}
	do(d, "k", `{"command":"create","path":"/memories/a.md","file_text":"0"}`)
	const changes = 600
	for i := range changes {
		if got := do(d, fmt.Sprint("key ", i), fmt.Sprintf(`{"command":"str_replace","path":"/memories/a.md","old_str":"%d","new_str":"%d"}`, i, i+1)); !strings.HasPrefix(got, "The memory file has been edited") {
			t.Fatal(got)
		}
	}
	for i, known := range map[int]bool{changes - 513: false, changes - 512: true, changes - 1: true} {
		if version, ok := d.Changed(fmt.Sprint("key ", i)); ok != known || ok && version != int64(i+2) {
			t.Errorf("change %d is known: %t, with the version %d", i, ok, version)
		}
	}
}

// A memory has up to a thousand files.
func TestMostFiles(t *testing.T) {
	t.Parallel()
	d := &memory.Directory{Files: map[string]memory.File{}}
	for i := range memory.MaxFiles {
		if err := d.Put(fmt.Sprintf("%s/%d", memory.Root, i), memory.File{Content: "x"}, memory.MaxBytes); err != nil {
			t.Fatal(err)
		}
	}
	err := d.Put(memory.Root+"/more", memory.File{Content: "x"}, memory.MaxBytes)
	if _, refused := errors.AsType[memory.Refusal](err); !refused || len(d.Files) != memory.MaxFiles {
		t.Errorf("a file more: %v; the memory has %d", err, len(d.Files))
	}
	if err := d.Put(memory.Root+"/7", memory.File{Content: "y"}, memory.MaxBytes); err != nil {
		t.Errorf("a new version of a file: %v", err)
	}
}
