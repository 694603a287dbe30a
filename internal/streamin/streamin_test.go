package streamin_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/streamin"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// A stream counts as Turnpike's if it belongs to a deployment, is a bucket, or copies such a stream, whichever of its
// sources that is; so does a copy whose origin cannot be examined. A copy may have any subject.
func TestOwnStreams(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := streamin.New(nc, "", "turnpike")
	if err != nil {
		t.Fatal(err)
	}
	from := func(name string) *jetstream.StreamSource { return &jetstream.StreamSource{Name: name} }
	merged := func(name string, sources ...*jetstream.StreamSource) jetstream.StreamConfig {
		return jetstream.StreamConfig{Name: name, Sources: sources}
	}
	mirror := func(name, of string) jetstream.StreamConfig {
		return jetstream.StreamConfig{Name: name, Mirror: from(of)}
	}
	plain := func(name, subject string) jetstream.StreamConfig {
		return jetstream.StreamConfig{Name: name, Subjects: []string{subject}}
	}
	const own, users = true, false
	check := func(c jetstream.StreamConfig, want bool) {
		t.Helper()
		c.Storage = jetstream.MemoryStorage
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		info, err := streams.Inspect(t.Context(), c.Name)
		if err != nil || info.Own != want {
			t.Errorf("%s is Turnpike's: %t, %v; want %t", c.Name, info.Own, err, want)
		}
		if subjects := info.Subjects; !slices.Equal(subjects, c.Subjects) && (len(c.Subjects) > 0 || !slices.Equal(subjects, []string{">"})) {
			t.Errorf("%s has the subjects %v", c.Name, subjects)
		}
	}
	check(plain("ORDERS", "orders"), users)
	check(plain("NEW_ORDERS", "new.orders"), users)
	check(plain("MY_TURNS", "my.turn.>"), users)
	check(plain("MY_SCORES", "scores.>"), users)
	check(jetstream.StreamConfig{Name: "YOUR_TURNS", Subjects: []string{"games.turn.>"}, Retention: jetstream.WorkQueuePolicy}, users)
	check(plain("YOUR_SCORES", "points.>"), users)
	check(plain("TURNPIKE_STATE", "turnpike.state.>"), own)
	check(plain("KV_users", "users"), own)
	check(plain("OBJ_files", "files"), own)
	check(jetstream.StreamConfig{Name: "A_B_TURNS", Subjects: []string{"a.b.turn.>"}, Retention: jetstream.WorkQueuePolicy}, own)
	check(plain("A_B_EVENTS", "a.b.events.>"), own)
	check(plain("A_EVENTS", "a.events.>"), users)

	check(mirror("OF_ORDERS", "ORDERS"), users)
	check(mirror("OF_STATE", "TURNPIKE_STATE"), own)
	check(merged("TWO", from("ORDERS"), from("NEW_ORDERS")), users)
	check(merged("FIRST", from("TURNPIKE_STATE"), from("ORDERS")), own)
	check(merged("LAST", from("ORDERS"), from("TURNPIKE_STATE")), own)
	check(merged("DEEP", from("NEW_ORDERS"), from("OF_STATE")), own)
	check(merged("AWAY", &jetstream.StreamSource{Name: "ORDERS", External: &jetstream.ExternalStream{APIPrefix: "$JS.hub.API", DeliverPrefix: "deliver.hub"}}), own)
	check(merged("GONE", from("ORDERS"), from("MISSING")), own)
	before := "ORDERS"
	for i := range 21 {
		name := "C" + strconv.Itoa(i)
		check(merged(name, from(before)), i >= 20) // one asks NATS for each stream before it, for at most 20
		before = name
	}
}
