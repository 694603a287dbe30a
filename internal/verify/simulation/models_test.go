package simulation

import (
	"strings"
	"testing"
	"time"
)

// The check of breakers sees a call while a breaker is open, and a second one during the test of a model.
func TestCheckBreakers(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	call := func(from, to int, failed bool) *try { return &try{began: at(from), ended: at(to), failed: failed} }
	// The last of five failures is at 10 s.
	failures := []*try{call(0, 2, true), call(1, 4, true), call(1, 6, true), call(2, 8, true), call(2, 10, true)}
	for name, c := range map[string]struct {
		more []*try
		want string
	}{
		"a call after the pause":           {[]*try{call(25, 26, false)}, ""},
		"a call at the instant of failure": {[]*try{call(10, 26, false)}, ""},
		"a call in the pause":              {[]*try{call(24, 26, false)}, "called the model 14s after"},
		"a call after a success":           {[]*try{call(3, 11, false), call(12, 26, false)}, ""},
		"a second failed test":             {[]*try{call(25, 27, true), call(41, 42, true), call(43, 44, false)}, "called the model 1s after the last of 7 failures"},
		"two tests at once":                {[]*try{call(25, 30, false), call(26, 27, false)}, "while another call tested"},
		"a test without an end":            {[]*try{{began: at(25)}, call(60, 61, false)}, "while another call tested"},
		"a call after the test":            {[]*try{call(25, 30, false), call(31, 32, false), call(31, 33, false)}, ""},
	} {
		o := newOutside()
		o.tried["w0/1 acme"] = append(append([]*try{}, failures...), c.more...)
		found := ""
		for _, err := range o.checkBreakers() {
			found += err.Error() + "\n"
		}
		if (found == "") != (c.want == "") || !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
}
