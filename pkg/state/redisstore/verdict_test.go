package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// A write is confirmed if enough replicas have it, and, with aof, the server itself has it on disk.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		confirm string
		copies  any                     // the answer to WAIT or WAITAOF
		want    *state.UnconfirmedError // nil: it is confirmed
	}{
		{"replicas:2", int64(1), &state.UnconfirmedError{Have: 1, Want: 2}},
		{"replicas:2", int64(2), nil},
		{"replicas:2", int64(3), nil},
		{"aof", []any{int64(0), int64(0)}, &state.UnconfirmedError{Unsynced: true}},
		{"aof", []any{int64(0), int64(1)}, &state.UnconfirmedError{Have: 1, Unsynced: true}},
		{"aof", []any{int64(1), int64(0)}, nil},
		{"aof:1", []any{int64(0), int64(1)}, &state.UnconfirmedError{Have: 1, Want: 1, Unsynced: true}},
		{"aof:1", []any{int64(1), int64(0)}, &state.UnconfirmedError{Want: 1}},
		{"aof:1", []any{int64(1), int64(1)}, nil},
	} {
		err := redisstore.Verdict(c.confirm, nil, c.copies, nil)
		got, _ := errors.AsType[*state.UnconfirmedError](err)
		if c.want != nil {
			c.want.Within = time.Second
		}
		if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != (c.want == nil) {
			t.Errorf("%s, answer %v: %v\n%s", c.confirm, c.copies, err, diff)
		}
	}
}

// A server that does not say which copies have a write confirms none.
func TestVerdictWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, c := range []struct {
		confirm string
		marked  error
		copies  any
		err     error
	}{
		{"replicas:1", refused, int64(1), nil}, // the answer counts copies of an earlier write
		{"replicas:1", nil, nil, refused},
		{"replicas:1", nil, "1", nil},
		{"aof", refused, []any{int64(1), int64(0)}, nil},
		{"aof", nil, nil, refused},
		{"aof", nil, nil, nil},
		{"aof", nil, int64(1), nil},
		{"aof", nil, []any{}, nil},
		{"aof", nil, []any{int64(1)}, nil},
		{"aof", nil, []any{"1", "0"}, nil},
	} {
		err := redisstore.Verdict(c.confirm, c.marked, c.copies, c.err)
		if err == nil || (c.marked != nil || c.err != nil) && !errors.Is(err, refused) {
			t.Errorf("%s, marker %v, answer %v, %v: %v", c.confirm, c.marked, c.copies, c.err, err)
		}
	}
}

// The store asks a server for its own copy on disk only with aof, and always for the replicas. The marker expires.
func TestQuestion(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{}) // it does not connect
	t.Cleanup(func() { _ = rdb.Close() })
	for confirm, want := range map[string][]any{
		"replicas:2": {"wait", 2, int64(250)},
		"aof":        {"waitaof", 1, 0, int64(250)},
		"aof:3":      {"waitaof", 1, 3, int64(250)},
	} {
		marked, copies, err := redisstore.Question(t.Context(), confirm, 250*time.Millisecond, rdb.Pipeline())
		if diff := cmp.Diff([][]any{{"set", "marker", 1, "px", int64(60_000)}, want}, [][]any{marked, copies}); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", confirm, err, diff)
		}
	}
}

// Servers have WAITAOF since version 7.2.
func TestServersWithWAITAOF(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"7.2.0": true, "7.2.4": true, "7.10.1": true, "8.0.0": true, "7.1.9": false, "7.0.15": false, "6.2.14": false, "6.9": false, "": false, "x": false} {
		if got := redisstore.WaitsForAOF(version); got != want {
			t.Errorf("%q: %t, want %t", version, got, want)
		}
	}
}
