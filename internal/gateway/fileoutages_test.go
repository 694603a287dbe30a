package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

var errAway = errors.New("does not answer")

// fileStore is a store that fails in the calls that a test names.
type fileStore struct {
	state.Store

	fails string
}

func (s *fileStore) DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error) {
	if s.fails == "names" && kind == state.FilesOf(state.DefaultTenant) {
		return nil, errAway
	}
	return s.Store.DocumentNames(ctx, kind)
}

func (s *fileStore) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	if s.fails == "replace" && kind == state.FilesOf(state.DefaultTenant) {
		return errAway
	}
	return s.Store.ReplaceDocument(ctx, kind, name, was, data)
}

// objectBus is a bus that fails in the calls that a test names.
type objectBus struct {
	*membus.Bus

	fails string
}

func (b *objectBus) PutObject(ctx context.Context, tenant, name string, r io.Reader) (int64, error) {
	if b.fails == "put" {
		return 0, errAway
	}
	return b.Bus.PutObject(ctx, tenant, name, r)
}

func (b *objectBus) OpenObject(ctx context.Context, tenant, name string) (io.ReadCloser, error) {
	if b.fails == "open" {
		return nil, errAway
	}
	return b.Bus.OpenObject(ctx, tenant, name)
}

func (b *objectBus) DeleteObject(ctx context.Context, tenant, name string) error {
	if b.fails == "delete" {
		return errAway
	}
	return b.Bus.DeleteObject(ctx, tenant, name)
}

// The problem of a file request names the part that failed: the store for documents, the bus for contents.
func TestFileProblemNamesThePart(t *testing.T) {
	t.Parallel()
	store, b := &fileStore{Store: memstore.New(memstore.Config{})}, &objectBus{Bus: membus.New()}
	g, err := gateway.New(store, b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	call := func(method, path string) (status int, code, id string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("x"))
		r.Header.Set("Content-Type", "text/plain")
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, r)
		var got struct{ ID, Code string }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Code, got.Code, got.ID
	}
	status, _, id := call(http.MethodPost, "/v1/files")
	if status != http.StatusCreated {
		t.Fatalf("upload: %d", status)
	}
	for _, tt := range []struct{ store, bus, method, path, want string }{
		{"names", "", http.MethodPost, "/v1/files", api.CodeStoreUnavailable},
		{"replace", "", http.MethodPost, "/v1/files", api.CodeStoreUnavailable},
		{"", "put", http.MethodPost, "/v1/files", api.CodeBusUnavailable},
		{"", "open", http.MethodGet, "/v1/files/" + id + "/content", api.CodeBusUnavailable},
		{"replace", "", http.MethodDelete, "/v1/files/" + id, api.CodeStoreUnavailable},
		{"", "delete", http.MethodDelete, "/v1/files/" + id, api.CodeBusUnavailable},
	} {
		store.fails, b.fails = tt.store, tt.bus
		if status, code, _ := call(tt.method, tt.path); status != http.StatusServiceUnavailable || code != tt.want {
			t.Errorf("%s %s without %s%s: %d %s, want %s", tt.method, tt.path, tt.store, tt.bus, status, code, tt.want)
		}
	}
}
