package natsstore_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// A turn adds little more than its texts to the stream.
func TestWrittenBytes(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, nc, "written")
	size := func() int64 {
		stream, err := js.Stream(t.Context(), "WRITTEN_STATE")
		if err != nil {
			t.Fatal(err)
		}
		return int64(stream.CachedInfo().State.Bytes) //nolint:gosec // small
	}
	for _, eager := range []bool{false, true} {
		most := int64(1400)
		if eager { // the claim of a turn is not a separate message
			most = 1100
		}
		w := statetest.Written{Turns: 10, Eager: eager}
		before, payload, runs := size(), int64(0), 20
		for i := range runs {
			payload += w.Store(t, s, uint64(i)) //nolint:gosec // small
		}
		turns := int64(runs * (w.Turns + 1))
		written := size() - before
		t.Logf("eager %t: a turn writes %d bytes, %d of them payload", eager, written/turns, payload/turns)
		if more := (written - payload) / turns; more > most {
			t.Errorf("eager %t: a turn writes %d bytes beyond its payload, want %d at most", eager, more, most)
		}
	}
}
