package main

import (
	"testing"
	"time"
)

// The lifetime of a key or a token is also a number of days.
func TestLifetime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"2d": 48 * time.Hour, "1.5d": 36 * time.Hour, "48h": 48 * time.Hour, "30s": 30 * time.Second} {
		var got lifetime
		if err := got.UnmarshalText([]byte(text)); err != nil || time.Duration(got) != want {
			t.Errorf("%s is %s, %v; want %s", text, time.Duration(got), err, want)
		}
	}
	for _, text := range []string{"", "0", "-1d", "-1h", "d", "2 days"} {
		var got lifetime
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %s, want an error", text, time.Duration(got))
		}
	}
}
