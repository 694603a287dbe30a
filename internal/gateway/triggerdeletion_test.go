package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// hastyStore removes the document of a trigger as soon as it is marked as deleted.
type hastyStore struct{ state.Store }

func (s hastyStore) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, old, data json.RawMessage) error {
	err := s.Store.ReplaceDocument(ctx, kind, name, old, data)
	if err == nil && kind == state.TriggersOf("acme") && bytes.Contains(data, []byte(`"deleted":true`)) {
		err = s.Store.ReplaceDocument(ctx, kind, name, data, nil)
	}
	return err
}

// A deletion also succeeds if another gateway completes it first.
func TestTriggerDeletionThatAnotherGatewayFinishes(t *testing.T) {
	t.Parallel()
	s := newTriggeredOn(t, hastyStore{memstore.New(memstore.Config{})}, 1)
	s.stream("ORDERS")
	acme := s.tenant("acme", api.TenantStream{Name: "ORDERS"})
	s.put(acme, "orders", orders)
	if err := acme.DeleteTrigger(t.Context(), "orders"); err != nil {
		t.Errorf("the first deletion: %v", err)
	}
	if err := acme.DeleteTrigger(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), "there is no trigger") {
		t.Errorf("the second deletion: %v", err)
	}
}
