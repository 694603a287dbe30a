package chaos

import (
	"maps"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// deleted returns the witnesses of deleted runs, and their ids by name.
func deleted(names ...string) (runs []Witness, ids map[string]string) {
	ids = map[string]string{}
	for _, name := range names {
		ids[name] = "run_" + ulid.Make().String()
		runs = append(runs, Witness{Submitted: Submitted{ID: ids[name]}})
	}
	return runs, ids
}

// wantRemnants checks that exactly the named runs have remnants.
func wantRemnants(t *testing.T, s *deployment, runs []Witness, ids map[string]string, want ...string) {
	t.Helper()
	found, err := remnants(t.Context(), s, runs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for name, id := range ids {
		if len(found[id]) > 0 {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(found) != len(want) {
		t.Errorf("remnants of %q, want %q; found %v", got, want, slices.Collect(maps.Values(found)))
	}
}

// Everything in Redis that names a deleted run is found, except its marker and references in other runs.
func TestRemnantsInRedis(t *testing.T) {
	t.Parallel()
	opts, err := redis.ParseURL(testbed.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	runs, ids := deleted("log", "index", "key", "marker", "parent")
	child := "run_" + ulid.Make().String() // it exists
	at := "remnants-" + ulid.Make().String()
	for _, err := range []error{
		rdb.RPush(t.Context(), at+":{s001}:log:"+ids["log"], "{}").Err(),
		rdb.ZAdd(t.Context(), at+":{s001}:lists", redis.Z{Member: "default\x00agent:a\x00" + ids["index"]}, redis.Z{Member: "default\x00parent:" + ids["parent"] + "\x00" + child}).Err(),
		rdb.Set(t.Context(), at+":idem:0123", ids["key"]+" fingerprint", 0).Err(),
		rdb.HSet(t.Context(), at+":{s001}:run:"+ids["marker"], "gone", "1", "tn", "default").Err(),
		rdb.HSet(t.Context(), at+":batch:"+ids["marker"], "origin", "{}").Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &deployment{redis: []*rig.RedisServer{{Client: rdb}}}
	wantRemnants(t, s, runs, ids, "log", "index", "key")
}

// The same holds in JetStream, where a marker is one message.
func TestRemnantsInJetStream(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(testbed.NATS(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STATE", Subjects: []string{prefix + ".state.>"}}); err != nil {
		t.Fatal(err)
	}
	runs, ids := deleted("history", "tree", "marker")
	for _, subject := range []string{"run." + ids["history"], "run." + ids["history"], "tree." + ids["tree"], "run." + ids["marker"], "batch." + ids["marker"]} {
		if _, err := js.Publish(t.Context(), prefix+".state."+subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	wantRemnants(t, &deployment{js: js}, runs, ids, "history", "tree")
}
