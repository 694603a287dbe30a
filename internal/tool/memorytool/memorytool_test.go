package memorytool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/internal/tool/memorytool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// forgetful loses the answer to the first change that it has stored.
type forgetful struct {
	*memstore.Store

	lost bool
}

func (f *forgetful) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	err := f.Store.ReplaceDocument(ctx, kind, name, was, data)
	if err == nil && !f.lost {
		f.lost = true
		return errors.New("connection reset")
	}
	return err
}

func call(t *testing.T, k tool.Kind, c tool.Call) tool.Result {
	t.Helper()
	r, err := k.Call(t.Context(), tool.Bound{Definition: &tool.Definition{Name: "memory"}, Settings: &toolspec.Files{Scope: "metadata.user"}}, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A change whose answer is lost is made once, and the model reads its result.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	store := &forgetful{Store: memstore.New(memstore.Config{})}
	c := tool.Call{
		Run: "run_1", Tenant: "acme", Name: "memory", IdempotencyKey: "key", Metadata: map[string]string{"user": "ann"},
		Arguments: json.RawMessage(`{"command":"create","path":"/memories/a","file_text":"x"}`),
	}
	if r := call(t, memorytool.New(store), c); r.IsError || r.Content != "File created successfully at: /memories/a (version 1)" {
		t.Errorf("%+v", r)
	}
	d, err := memory.New(store).Read(t.Context(), memory.Scope{Tenant: "acme", Name: "metadata.user:ann"})
	if err != nil || !store.lost || d.Version != 1 || d.Files["/memories/a"].Content != "x" {
		t.Errorf("the memory is %+v, %v", d, err)
	}
}

// A call in a run without the metadata key, such as a child run, fails, and the model reads why.
func TestNoKey(t *testing.T) {
	t.Parallel()
	c := tool.Call{Run: "run_1", Tenant: "acme", Name: "memory", Arguments: json.RawMessage(`{"command":"view","path":"/memories"}`)}
	if r := call(t, memorytool.New(memstore.New(memstore.Config{})), c); !r.IsError || !strings.Contains(r.Content, `without the metadata "user"`) {
		t.Errorf("%+v", r)
	}
}
