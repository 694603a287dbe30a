package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// The program's tool, hook and loop take part in a run, on real servers.
func TestEmbed(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]string{"redis": testbed.Redis(t), "jetstream": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			o := turnpike.Options{NATS: turnpike.NATS{URL: testbed.NATSServer(t).URL()}, Redis: turnpike.Redis{URL: redis}, Prefix: "embed"}
			if err := run(t.Context(), o, &out); err != nil {
				t.Fatal(err)
			}
			want := `timetable {"by":"plane","to":"Lisbon"}
  Denied: we take the train
timetable {"by":"train","to":"Lisbon"}
  9:02 to Lisbon, platform 4
Take the 9:02.
Take the 9:02 from platform 4.
`
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
