package natsstore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// The first page has all runs with an indexed value, however many others are newer, followed by those from
// before the index, unless too many others are in between.
func TestListByIndexedMetadata(t *testing.T) {
	t.Parallel()
	s := natsstore.Indexed(&strings.Builder{})
	learn := func(user string, keys ...string) state.RunID {
		run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: "acme", Agent: "a", Status: state.Completed, Metadata: map[string]string{"user": user}}
		s.LearnIndexed(state.NewRun{State: run, Indexed: keys}, 1)
		return run.ID
	}
	before := learn("42")
	first := learn("42", "user")
	second := learn("42", "user")
	for range 1_100 {
		learn("7", "user")
	}
	look := func(f state.Filter, want ...state.RunID) {
		t.Helper()
		var got []state.RunID
		page, err := s.List(t.Context(), f)
		for _, r := range page.Runs {
			got = append(got, r.ID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("List(%v) = %v, %v, want %v", f, got, err, want)
		}
	}
	f := state.Filter{Tenant: "acme", Metadata: map[string]string{"user": "42"}}
	look(f)
	f.Indexed = map[string]state.RunID{"user": first}
	look(f, second, first, before)
	f.Agent = "a"
	look(f, second, first, before)
	f.Cursor = string(second)
	look(f, first, before)
	f.Cursor = string(first)
	look(f, before)
	f.Cursor = ""
	s.Forget(second)
	look(f, first, before)
}
