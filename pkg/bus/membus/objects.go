package membus

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// PutObject implements bus.Objects.
func (b *Bus) PutObject(ctx context.Context, tenant, name string, r io.Reader) (int64, error) {
	if err := b.open(); err != nil {
		return 0, err
	}
	content, err := io.ReadAll(io.LimitReader(r, bus.DefaultObjectBytes+1))
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.objects[tenant][name]; taken {
		return 0, fmt.Errorf("object %s exists", name)
	}
	total := len(content)
	for _, o := range b.objects[tenant] {
		total += len(o)
	}
	if total > bus.DefaultObjectBytes {
		return 0, bus.ErrObjectsFull
	}
	if b.objects[tenant] == nil {
		b.objects[tenant] = map[string][]byte{}
	}
	b.objects[tenant][name] = content
	return int64(len(content)), nil
}

// OpenObject implements bus.Objects.
func (b *Bus) OpenObject(_ context.Context, tenant, name string) (io.ReadCloser, error) {
	if err := b.open(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	content, ok := b.objects[tenant][name]
	if !ok {
		return nil, bus.ErrNoObject
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// DeleteObject implements bus.Objects.
func (b *Bus) DeleteObject(_ context.Context, tenant, name string) error {
	if err := b.open(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects[tenant], name)
	return nil
}

// ObjectNames implements bus.Objects.
func (b *Bus) ObjectNames(_ context.Context, tenant string) ([]string, error) {
	if err := b.open(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.objects[tenant])), nil
}

// DropObjects implements bus.Objects.
func (b *Bus) DropObjects(_ context.Context, tenant string) error {
	if err := b.open(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, tenant)
	return nil
}
