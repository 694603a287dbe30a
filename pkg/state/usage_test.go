package state_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A call that does not read from the cache what the previous call had cached pays for those tokens again. After
// a compaction, or with another model, the prompt is a different one.
func TestCacheExpired(t *testing.T) {
	t.Parallel()
	type call struct {
		model              string
		read, write, again int64
	}
	for name, test := range map[string]struct {
		calls   []call
		compact int // before that call; 0: never
	}{
		"kept":          {calls: []call{{"m", 0, 100, 0}, {"m", 100, 20, 0}, {"m", 120, 20, 0}}},
		"expired":       {calls: []call{{"m", 0, 100, 0}, {"m", 100, 20, 0}, {"m", 0, 140, 120}, {"m", 140, 20, 0}}},
		"a part of it":  {calls: []call{{"m", 0, 100, 0}, {"m", 60, 60, 40}}},
		"no cache":      {calls: []call{{"m", 0, 0, 0}, {"m", 0, 0, 0}}},
		"another model": {calls: []call{{"m", 0, 100, 0}, {"n", 0, 120, 0}, {"n", 0, 140, 120}}},
		"compacted":     {calls: []call{{"m", 0, 100, 0}, {"m", 100, 20, 0}, {"m", 0, 50, 0}, {"m", 0, 70, 50}}, compact: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log []state.Entry
			for i, c := range test.calls {
				if test.compact > 0 && i == test.compact {
					log = append(log, state.Entry{Type: state.EntryCompacted})
				}
				u := state.Usage{InputTokens: 200, CacheReadTokens: c.read, CacheWriteTokens: c.write}
				if got := state.CacheExpired(log, c.model, u); got != c.again {
					t.Errorf("at call %d %d tokens have expired, want %d", i, got, c.again)
				}
				log = append(log, state.Entry{Type: state.EntryModel, Message: &state.Message{Model: c.model}, Usage: &u}, state.Entry{Type: state.EntryTool})
			}
		})
	}
}
