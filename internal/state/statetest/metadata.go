package statetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// hostileValues are metadata values that an index must keep apart.
func hostileValues() []string {
	return []string{
		"", "42", "4", "42 ", "42\n", "42\x00", "\x00", "a\nmeta:b", "user\x0042", "=", "x=y", "é", "e\u0301", "\u202e42", "*", "[a-z]",
		strings.Repeat("v", 4096), strings.Repeat("v", 4095) + "w",
	}
}

// Runs are found by their indexed metadata, each value separately, whatever it is.
func testIndexed(t *testing.T, s *suite) {
	of := map[string][]state.RunID{}
	first := state.RunID("")
	for range 2 {
		for _, value := range hostileValues() {
			run := newRun(t)
			run.Metadata = map[string]string{"user": value, "other": "42"}
			s.index(t, run, "user", "absent")
			of[value] = append([]state.RunID{run.ID}, of[value]...)
			if first == "" {
				first = run.ID
			}
		}
	}
	for _, value := range hostileValues() {
		f := state.Filter{Tenant: "default", Metadata: map[string]string{"user": value}, Indexed: map[string]state.RunID{"user": first}}
		s.finds(t, f, of[value]...)
		f.Limit = 1
		s.finds(t, f, of[value]...)
		f.Metadata = map[string]string{"user": value, "other": "42"} // a key that is not indexed
		s.finds(t, f, of[value]...)
		f.Metadata["other"] = value
		if value != "42" {
			s.finds(t, f)
		}
	}
	s.finds(t, state.Filter{Tenant: "default", Metadata: map[string]string{"user": "nobody"}, Indexed: map[string]state.RunID{"user": first}})
	s.finds(t, state.Filter{Tenant: "default", Metadata: map[string]string{"absent": ""}, Indexed: map[string]state.RunID{"absent": first}})
}

// Runs from before a key was indexed are also found, and so are those indexed then: the index may be older than
// the filter says.
func testIndexedLater(t *testing.T, s *suite) {
	var ids []state.RunID
	for i := range 12 {
		run := newRun(t)
		run.Metadata = map[string]string{"user": []string{"a", "b"}[i%2], "channel": []string{"web", "mail", "chat"}[i%3]}
		run.Agent = []string{"even", "odd"}[i%2]
		keys := []string{}
		if i >= 4 {
			keys = append(keys, "user")
		}
		if i >= 6 {
			keys = append(keys, "channel")
		}
		s.index(t, run, keys...)
		ids = append(ids, run.ID)
	}
	newest := func(picked ...int) (want []state.RunID) {
		for _, i := range picked {
			want = append(want, ids[i])
		}
		return want
	}
	for from := 4; from < 12; from++ {
		for limit := 1; limit < 8; limit++ {
			for _, tt := range []struct {
				f    state.Filter
				want []state.RunID
			}{
				{state.Filter{Metadata: map[string]string{"user": "a"}}, newest(10, 8, 6, 4, 2, 0)},
				{state.Filter{Metadata: map[string]string{"user": "b", "channel": "mail"}}, newest(7, 1)},
				{state.Filter{Metadata: map[string]string{"user": "a"}, Agent: "even"}, newest(10, 8, 6, 4, 2, 0)},
				{state.Filter{Metadata: map[string]string{"user": "a"}, Agent: "odd"}, nil},
				{state.Filter{Metadata: map[string]string{"user": "a"}, Status: []state.Status{state.Queued}}, newest(10, 8, 6, 4, 2, 0)},
				{state.Filter{Metadata: map[string]string{"user": "a"}, Agent: "even", Status: []state.Status{state.Waiting}}, nil},
				{state.Filter{Metadata: map[string]string{"user": "a"}, Parent: ids[0]}, nil},
			} {
				tt.f.Tenant, tt.f.Limit = "default", limit
				tt.f.Indexed = map[string]state.RunID{"user": ids[from], "channel": ids[max(from, 6)], "unused": ids[0]}
				s.finds(t, tt.f, tt.want...)
			}
		}
	}
}

// An index keeps tenants apart, and a filter for all tenants does not need it.
func testIndexedTenants(t *testing.T, s *suite) {
	var all []state.RunID
	of := map[string]state.RunID{}
	for _, tenant := range []string{"acme", "default", "acme-2"} {
		run := newRun(t)
		run.Tenant, run.Metadata = tenant, map[string]string{"user": "42"}
		s.index(t, run, "user")
		of[tenant], all = run.ID, append([]state.RunID{run.ID}, all...)
	}
	f := state.Filter{Metadata: map[string]string{"user": "42"}, Indexed: map[string]state.RunID{"user": all[len(all)-1]}}
	s.finds(t, f, all...)
	for tenant, id := range of {
		f.Tenant = tenant
		s.finds(t, f, id)
	}
	f.Tenant = "none"
	s.finds(t, f)
}

// A deleted run is no longer found by its metadata; an ended one is.
func testIndexedDelete(t *testing.T, s *suite) {
	var ids []state.RunID
	for range 3 {
		run := newRun(t)
		run.Metadata = map[string]string{"user": "42", "channel": "web"}
		s.index(t, run, "user", "channel")
		s.commit(t, s.mustClaim(t, run.ID, 1), state.EndCompleted, state.Entry{})
		ids = append(ids, run.ID)
	}
	f := func(key, value string) state.Filter {
		return state.Filter{Tenant: "default", Metadata: map[string]string{key: value}, Indexed: map[string]state.RunID{key: ids[0]}}
	}
	s.finds(t, f("user", "42"), ids[2], ids[1], ids[0])
	if err := s.Delete(t.Context(), ids[1]); err != nil {
		t.Fatal(err)
	}
	s.finds(t, f("user", "42"), ids[2], ids[0])
	s.finds(t, f("channel", "web"), ids[2], ids[0])
}

// index stores a run that is indexed by some keys, twice: the second call changes nothing.
func (s *suite) index(t *testing.T, run state.State, keys ...string) {
	t.Helper()
	for _, existing := range []bool{false, true} {
		made, err := s.Create(t.Context(), state.NewRun{State: run, Indexed: keys, RedeliveryDelay: long})
		if err != nil || made.Existing != existing {
			t.Fatalf("Create(%s) = existing %v, %v, want %v", run.ID, made.Existing, err, existing)
		}
	}
}

// finds fails unless the pages of a filter have exactly these runs, in this order.
func (s *suite) finds(t *testing.T, f state.Filter, want ...state.RunID) {
	t.Helper()
	var got []state.RunID
	what := fmt.Sprintf("%.200q", fmt.Sprint(f))
	for range 100 {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatalf("List(%s): %v", what, err)
		}
		for _, st := range page.Runs {
			got = append(got, st.ID)
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("List(%s) = %v, want %v", what, got, want)
	}
}
