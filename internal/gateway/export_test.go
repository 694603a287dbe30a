package gateway

import "testing"

// Routes returns the patterns that a gateway serves.
func Routes(t *testing.T) []string {
	t.Helper()
	var patterns []string
	for p := range (&Gateway{}).routes() {
		patterns = append(patterns, p)
	}
	return patterns
}
