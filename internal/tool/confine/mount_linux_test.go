package confine

import "testing"

// The release of a kernel is compared by its two first numbers.
func TestAtLeast(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{
		"6.14.0-27-generic": true, "6.14": true, "6.15.1": true, "7.0.0": true, "10.2": true,
		"6.13.99": false, "5.15.0": false, "6.9": false, "": false, "unknown": false,
	} {
		if got := atLeast(release, 6, 14); got != want {
			t.Errorf("%q is at least 6.14: %v, want %v", release, got, want)
		}
	}
}
