package tool_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A14: P P S P runs as {P,P} {S} {P}.
func TestBatches(t *testing.T) {
	t.Parallel()
	tests := map[string][][]int{
		"":     nil,
		"P":    {{0}},
		"PPSP": {{0, 1}, {2}, {3}},
		"SSPP": {{0}, {1}, {2, 3}},
	}
	for calls, want := range tests {
		got := tool.Batches(strings.Split(calls, "")[:len(calls)], func(name string) bool { return name == "S" })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Batches(%s):\n%s", calls, diff)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	key := tool.IdempotencyKey("run_1", "c1", "pay", json.RawMessage(`{"a":1,"b":2}`))
	if got := tool.IdempotencyKey("run_1", "c1", "pay", json.RawMessage(`{"b":2, "a":1}`)); got != key {
		t.Errorf("key depends on the order of the arguments")
	}
	if got := tool.IdempotencyKey("run_1", "c2", "pay", json.RawMessage(`{"a":1,"b":2}`)); got == key {
		t.Errorf("two calls share a key")
	}
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	if got := tool.Truncate("short", 10); got != "short" {
		t.Errorf("Truncate = %q", got)
	}
	if got, want := tool.Truncate("aé!", 2), "a\n[output truncated: 1 of 4 bytes]"; got != want {
		t.Errorf("Truncate = %q, want %q", got, want)
	}
}
