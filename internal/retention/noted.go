package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// note records the time at which runs of a tenant were deleted last.
type note struct {
	At state.Time `json:"at"`
}

// documents reads stored documents, as state.Documents does.
type documents interface {
	Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error)
}

// LastDeletion returns the time at which runs of a tenant were deleted last, by the clock of the gateway
// that deleted them and up to NotedEvery too early. It is the zero time if none were deleted. A process
// that ends during a deletion may leave a time that is earlier by the length of the deletion.
func LastDeletion(ctx context.Context, store documents, tenant string) (time.Time, error) {
	data, err := store.Document(ctx, state.DeletionsDocument, tenant)
	if errors.Is(err, state.ErrNotFound) {
		return time.Time{}, nil
	}
	var n note
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the last deletion of tenant %s: %w", tenant, err)
	}
	return n.At.Time, nil
}

// NotedEvery is the maximum time between the latest deletion and the noted one: consecutive
// deletions share a note.
const NotedEvery = time.Second

// notes has the times at which this process last noted a deletion, by tenant.
type notes struct {
	mu sync.Mutex // no call of the store is made under it
	at map[string]time.Time
}

// noted deletes runs of a tenant, and notes the time before and after the deletion.
func (c *Cleaner) noted(ctx context.Context, tenant string, deletes func() error) error {
	if err := c.note(ctx, tenant); err != nil {
		return err
	}
	return errors.Join(deletes(), c.note(ctx, tenant))
}

func (c *Cleaner) note(ctx context.Context, tenant string) error {
	now := time.Now()
	if now.Sub(c.notes.last(tenant)) < NotedEvery {
		return nil
	}
	data, err := json.Marshal(note{state.At(now)})
	if err != nil {
		return fmt.Errorf("encode the time of the last deletion: %w", err)
	}
	if err := c.store.PutDocument(ctx, state.DeletionsDocument, tenant, data); err != nil {
		return err
	}
	c.notes.set(tenant, now)
	return nil
}

// last returns the time at which this process last noted a deletion of a tenant.
func (n *notes) last(tenant string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at[tenant]
}

func (n *notes) set(tenant string, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.After(n.at[tenant]) {
		n.at[tenant] = at
	}
}
