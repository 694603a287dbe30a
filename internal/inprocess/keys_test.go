package inprocess_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A retry with the key of a request, as after an answer that was lost, creates nothing again; one with another key does.
func TestKeys(t *testing.T) {
	t.Parallel()
	store, b := memstore.New(memstore.Config{}), membus.New()
	_, c := newProcessOn(t, store, b)
	source := submit(t, c)
	end(t, store, b, state.RunID(source.ID))
	for name, create := range map[string]func(key string) (string, error){
		"submit": func(key string) (string, error) {
			run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: api.Text("Hello.")}, key)
			return run.ID, err
		},
		"batch": func(key string) (string, error) {
			b, err := c.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{{Agent: "hello", Input: api.Text("Hello.")}}}, key)
			return b.BatchID, err
		},
		"fork": func(key string) (string, error) {
			run, err := c.ForkWithKey(t.Context(), source.ID, api.ForkRequest{Turn: new(0)}, key)
			return run.ID, err
		},
	} {
		var ids [3]string
		for i, key := range []string{"one", "one", "two"} {
			var err error
			if ids[i], err = create(name + key); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if ids[0] == "" || ids[0] != ids[1] || ids[0] == ids[2] {
			t.Errorf("%s: %v, want the same twice and then another", name, ids)
		}
	}
}
