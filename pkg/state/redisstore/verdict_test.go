package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
