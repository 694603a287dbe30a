package series_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/engine/series"
)

func admitted(p *series.Limiter, tenant string, names int) (n int) {
	for i := range names {
		if p.Admit(tenant, fmt.Sprintf("%s-%d", tenant, i)) {
			n++
		}
	}
	return n
}

// A tenant with 1,000 names gets a share of the values and leaves the rest to others.
func TestShare(t *testing.T) {
	t.Parallel()
	p := series.New(32)
	if n := admitted(p, "hostile", 1000); n != 8 {
		t.Errorf("the hostile tenant has %d of 32 values, want 8", n)
	}
	if n := admitted(p, "second", 1000); n != 6 {
		t.Errorf("the second tenant has %d values, want 6", n)
	}
	total := 14
	for i := range 100 {
		n := admitted(p, fmt.Sprintf("tenant%d", i), 1000)
		if i < 8 && n == 0 {
			t.Errorf("tenant %d has no value", i+3)
		}
		total += n
	}
	if total != 32 {
		t.Errorf("%d values are admitted, want 32", total)
	}
	if !p.Admit("hostile", "hostile-0") || !p.Admit("late", "second-5") {
		t.Error("an admitted value was refused")
	}
	if p.Admit("hostile", "hostile-8") {
		t.Error("the hostile tenant got another value")
	}
}

// Values that monitoring cannot store are not admitted.
func TestUnusableValues(t *testing.T) {
	t.Parallel()
	p := series.New(32)
	for _, v := range []string{strings.Repeat("x", 1000), "a\xff"} {
		if p.Admit("a", v) {
			t.Errorf("%.10q is admitted", v)
		}
	}
}
