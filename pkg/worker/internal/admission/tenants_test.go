package admission

import "testing"

// A tenant is noisy here from half of its even share of the slots on, and never with
// a run or two.
func TestTenantsNoisy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		slots int
		turns map[string]int
		noisy map[string]bool
	}{
		{1, map[string]int{"a": 1}, map[string]bool{"a": false}},
		{4, map[string]int{"a": 3, "b": 1}, map[string]bool{"a": true, "b": false}},
		{100, map[string]int{"a": 49}, map[string]bool{"a": false, "b": false}},
		{100, map[string]int{"a": 50}, map[string]bool{"a": true}},
		{100, map[string]int{"a": 90, "b": 10}, map[string]bool{"a": true, "b": false}},
		{100, map[string]int{"a": 45, "b": 45, "c": 2}, map[string]bool{"a": true, "b": true, "c": false}},
	} {
		x := NewTenants(tt.slots)
		for name, n := range tt.turns {
			for range n + 1 {
				x.Enter(name)
			}
			x.Leave(name)
		}
		x.Enter("gone")
		x.Leave("gone")
		for name, want := range tt.noisy {
			if got := x.Noisy(name); got != want {
				t.Errorf("%d slots, %v: %s is noisy: %v", tt.slots, tt.turns, name, got)
			}
		}
	}
}
