package policy_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/policy"
)

func TestSubjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		subject, pattern string
		within, overlap  bool
	}{
		{"a.b", "a.b", true, true},
		{"a.b", "a.*", true, true},
		{"a.*", "a.b", false, true},
		{"a.b.c", "a.>", true, true},
		{"a", "a.>", false, false},
		{"a.>", "a.*", false, true},
		{"a.>", "a.>", true, true},
		{">", "a.>", false, true},
		{"*.b", "a.>", false, true},
		{"*.b", "a.c", false, false},
		{"a.b", ">", true, true},
		{"a.b", "a", false, false},
		{"ab.c", "a.>", false, false},
	} {
		if got := policy.Within(c.subject, c.pattern); got != c.within {
			t.Errorf("%s within %s: %t", c.subject, c.pattern, got)
		}
		if got := policy.Overlap(c.subject, c.pattern); got != c.overlap || got != policy.Overlap(c.pattern, c.subject) {
			t.Errorf("%s overlaps %s: %t", c.subject, c.pattern, got)
		}
	}
	for _, text := range []string{"", ".", "a.", "a..b", "a b", "a.>.b", "a*", "a.b>", "a\n", strings.Repeat("a", 257)} {
		if policy.CheckSubject(text) == nil {
			t.Errorf("%.20q is a subject", text)
		}
	}
}

// If a pattern is within another one, each subject that it matches also matches the other, and the two overlap.
func FuzzSubjects(f *testing.F) {
	f.Add("a.*.c", "a.>", uint64(1))
	f.Add("*.b", "a.b", uint64(2))
	f.Fuzz(func(t *testing.T, a, b string, seed uint64) {
		if policy.CheckSubject(a) != nil || policy.CheckSubject(b) != nil {
			return
		}
		random := rand.New(rand.NewPCG(seed, 0))
		var literal []string
		for token := range strings.SplitSeq(a, ".") {
			switch token {
			case ">":
				for range 1 + random.IntN(3) {
					literal = append(literal, "x")
				}
			case "*":
				literal = append(literal, "y")
			default:
				literal = append(literal, token)
			}
		}
		subject := strings.Join(literal, ".")
		if !policy.Within(subject, a) {
			t.Fatalf("%q does not match %q", subject, a)
		}
		if policy.Within(a, b) && (!policy.Within(subject, b) || !policy.Overlap(a, b)) {
			t.Fatalf("%q is within %q, and %q does not match it", a, b, subject)
		}
		if policy.Within(subject, b) && !policy.Overlap(a, b) {
			t.Fatalf("%q matches %q and %q, which do not overlap", subject, a, b)
		}
	})
}
