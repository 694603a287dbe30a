package statetest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A list of the children of several runs has all of them, in pages, and no others.
func testListParents(t *testing.T, s *suite) {
	const parents, children = 12, 90
	var roots []state.RunID
	want := map[bool][]state.RunID{} // by whether the parent is in the request
	for n := range parents {
		root := s.create(t)
		roots = append(roots, root.ID)
		for range n % 3 * children / 2 {
			child := newRun(t)
			child.Parent = &state.Parent{RunID: root.ID, CallID: "c", Depth: 1}
			s.store(t, child)
			want[n%4 != 1] = append(want[n%4 != 1], child.ID)
		}
	}
	asked := slices.DeleteFunc(slices.Clone(roots), func(id state.RunID) bool { return slices.Index(roots, id)%4 == 1 })
	for _, tenant := range []string{"", "default"} {
		var got []state.RunID
		for f := (state.Filter{Tenant: tenant, Parents: asked, Limit: 50}); ; {
			page, err := s.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Runs {
				got = append(got, r.ID)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		expect := slices.Clone(want[true])
		slices.Sort(expect)
		slices.Reverse(expect)
		if diff := cmp.Diff(expect, got); diff != "" {
			t.Errorf("children of %d runs of %d, tenant %q:\n%s", len(asked), parents, tenant, diff)
		}
	}
}
