package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// TestPublishedAfterDeletions checks that published ends, and returns the remaining events, if a deletion has
// purged the last events of the stream, or all of them.
func TestPublishedAfterDeletions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	js, err := jetstream.New(testbed.NATS(t))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: streamEvents, Subjects: []string{prefix + ".events.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for seq := range 3 {
		for _, run := range []string{"run_a", "run_b"} {
			if _, err := js.Publish(ctx, prefix+".events."+run, fmt.Appendf(nil, `{"seq":%d}`, seq+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := &deployment{js: js}
	for _, deleted := range []struct {
		run  string
		left int
	}{{"run_b", 3}, {"run_a", 0}} {
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(prefix+".events."+deleted.run)); err != nil {
			t.Fatal(err)
		}
		got, err := published(ctx, s)
		if err != nil {
			t.Fatalf("after the deletion of %s: %v", deleted.run, err)
		}
		if len(got["run_a"]) != deleted.left || len(got["run_b"]) != 0 {
			t.Errorf("after the deletion of %s: %d events of run_a and %d of run_b, want %d and 0", deleted.run, len(got["run_a"]), len(got["run_b"]), deleted.left)
		}
	}
}
