package memory_test

import (
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
