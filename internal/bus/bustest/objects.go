package bustest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// Objects of any length are returned unchanged, to their own tenant only.
func testObjects(t *testing.T, b bus.Bus) {
	for name, size := range map[string]int{"empty": 0, "small": 5, "one_chunk": 128 << 10, "several-chunks": 1<<20 + 7} {
		content := bytes.Repeat([]byte(name+"."), size/len(name)+1)[:size]
		n, err := b.PutObject(t.Context(), "acme", name, iotest.HalfReader(bytes.NewReader(content)))
		if err != nil || n != int64(size) {
			t.Fatalf("PutObject %s: %d, %v", name, n, err)
		}
		if got := object(t, b, "acme", name); !bytes.Equal(got, content) {
			t.Errorf("%s has %d bytes, want %d", name, len(got), size)
		}
		if _, err := b.OpenObject(t.Context(), "other", name); !errors.Is(err, bus.ErrNoObject) {
			t.Errorf("%s of another tenant: %v", name, err)
		}
	}
	names, err := b.ObjectNames(t.Context(), "acme")
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"empty", "one_chunk", "several-chunks", "small"}) {
		t.Errorf("ObjectNames: %v, %v", names, err)
	}
	for range 2 {
		if err := b.DeleteObject(t.Context(), "acme", "small"); err != nil {
			t.Errorf("DeleteObject: %v", err)
		}
	}
	if err := b.DeleteObject(t.Context(), "other", "small"); err != nil {
		t.Errorf("DeleteObject without any: %v", err)
	}
	if _, err := b.OpenObject(t.Context(), "acme", "small"); !errors.Is(err, bus.ErrNoObject) {
		t.Errorf("a deleted object: %v", err)
	}
	if got := object(t, b, "acme", "one_chunk"); len(got) != 128<<10 {
		t.Errorf("its neighbour has %d bytes", len(got))
	}
	if err := b.DropObjects(t.Context(), "acme"); err != nil {
		t.Errorf("DropObjects: %v", err)
	}
	if names, err := b.ObjectNames(t.Context(), "acme"); err != nil || len(names) > 0 {
		t.Errorf("after DropObjects: %v, %v", names, err)
	}
}

// An upload that fails leaves nothing.
func testObjectsAborted(t *testing.T, b bus.Bus) {
	broken := errors.New("the sender is gone")
	r := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), iotest.ErrReader(broken))
	if _, err := b.PutObject(t.Context(), "acme", "broken", r); !errors.Is(err, broken) {
		t.Errorf("a sender that breaks off: %v", err)
	}
	r = io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := b.PutObject(t.Context(), "acme", "broken", r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a sender that ends early: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r = io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), readerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	}))
	if _, err := b.PutObject(ctx, "acme", "cancelled", io.LimitReader(r, 4<<20)); !errors.Is(err, context.Canceled) {
		t.Errorf("a sender that is cancelled: %v", err)
	}
	if names, err := b.ObjectNames(t.Context(), "acme"); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	if _, err := b.PutObject(t.Context(), "acme", "broken", strings.NewReader("whole")); err != nil {
		t.Errorf("the same name again: %v", err)
	}
	if got := object(t, b, "acme", "broken"); string(got) != "whole" {
		t.Errorf("the same name again has %d bytes", len(got))
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func object(t *testing.T, b bus.Bus, tenant, name string) []byte {
	t.Helper()
	r, err := b.OpenObject(t.Context(), tenant, name)
	if err != nil {
		t.Fatalf("OpenObject %s: %v", name, err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return content
}
