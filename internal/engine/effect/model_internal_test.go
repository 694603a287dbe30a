package effect

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A response may have so many bytes, calls, and bytes in the id and name of a call. One with more fails the call for
// good: another try would give the same.
func TestLimitsOfAResponse(t *testing.T) {
	t.Parallel()
	const limit = 2 * MaxCalls
	long := strings.Repeat("x", maxCallName)
	some := func(n int) []state.Part {
		return slices.Repeat([]state.Part{{Type: state.PartToolCall, ID: "c"}}, n)
	}
	for name, tt := range map[string]struct {
		parts   []state.Part
		refused bool
	}{
		"as many bytes":   {[]state.Part{{Text: strings.Repeat("x", limit-6), ID: "1", Name: "2", Arguments: "3", Content: "4", Data: "5", Opaque: json.RawMessage("6")}}, false},
		"one byte more":   {[]state.Part{{Text: strings.Repeat("x", limit-5), ID: "1", Name: "2", Arguments: "3", Content: "4", Data: "5", Opaque: json.RawMessage("6")}}, true},
		"as many calls":   {some(MaxCalls), false},
		"one call more":   {some(MaxCalls + 1), true},
		"no calls":        {slices.Repeat([]state.Part{{Type: state.PartText, Text: "x"}}, MaxCalls+1), false},
		"as long an id":   {[]state.Part{{Type: state.PartToolCall, ID: long}}, false},
		"a longer id":     {[]state.Part{{Type: state.PartToolCall, ID: long + "x"}}, true},
		"a longer name":   {[]state.Part{{Type: state.PartToolCall, Name: long + "x"}}, true},
		"the first of 2":  {[]state.Part{{Type: state.PartToolCall, Name: long + "x"}, {Type: state.PartToolCall, Name: "b"}}, true},
		"not of any call": {[]state.Part{{Type: state.PartText, ID: long + "x"}}, false},
	} {
		err := tooLong("p", &model.Response{Parts: tt.parts}, limit)
		e, ok := errors.AsType[*model.Error](err)
		if ok != tt.refused || ok && (e.Class != model.InvalidRequest || e.Provider != "p") {
			t.Errorf("%s: error %+v, refused: want %t", name, err, tt.refused)
		}
	}
}

// Under a cost limit, charged tools share what the run has left, and one whose uses the provider cannot bound is left
// out. Tools that cost nothing keep what the definition says.
func TestAffordableTools(t *testing.T) {
	t.Parallel()
	free, search := model.ProviderTool{Name: "free", MaxUses: 7}, model.ProviderTool{Name: model.WebSearch, MaxUses: 5}
	uses := func(n int64) model.ProviderTool { return model.ProviderTool{Name: model.WebSearch, MaxUses: n} }
	used := state.MicroUSD(20_000)
	for name, tt := range map[string]struct {
		provider, model string
		limit           state.MicroUSD
		used            *state.MicroUSD
		tools, want     []model.ProviderTool
	}{
		"no limit":              {"anthropic", "claude-haiku-4-5", 0, nil, []model.ProviderTool{uses(0)}, []model.ProviderTool{uses(0)}},
		"shared":                {"anthropic", "claude-haiku-4-5", 70_000, nil, []model.ProviderTool{search, free, search}, []model.ProviderTool{uses(5), free, uses(2)}},
		"used":                  {"anthropic", "claude-haiku-4-5", 70_000, &used, []model.ProviderTool{search, free, search}, []model.ProviderTool{uses(5), free}},
		"more is used":          {"anthropic", "claude-haiku-4-5", 10_000, &used, []model.ProviderTool{search, free}, []model.ProviderTool{free}},
		"uses without a bound":  {"anthropic", "claude-haiku-4-5", 1_000_000, nil, []model.ProviderTool{uses(0)}, []model.ProviderTool{uses(10)}},
		"impossible to bound":   {"gemini", "gemini-3-pro-preview", 1_000_000, nil, []model.ProviderTool{uses(0), free}, []model.ProviderTool{free}},
		"unbounded and free":    {"gemini", "unpriced", 1_000_000, nil, []model.ProviderTool{uses(0)}, []model.ProviderTool{uses(0)}},
		"a provider of its own": {"mine", "claude-haiku-4-5", 1_000_000, nil, []model.ProviderTool{uses(0)}, []model.ProviderTool{uses(10)}},
	} {
		ms := &models{cfg: Models{Prices: model.DefaultPrices()}}
		s := &state.State{Limits: state.Limits{CostUSD: tt.limit}, Usage: state.Usage{CostUSD: tt.used}}
		got := ms.affordable(s, &agent.Model{Provider: tt.provider, Name: tt.model}, tt.tools)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// sent is a bus that keeps live events for one watched run.
type sent struct {
	t      *testing.T
	deltas []model.Delta
	first  []bool
}

func (*sent) Watched(state.RunID) bool { return true }
func (*sent) Stop()                    {}

func (s *sent) PublishLive(_ state.RunID, data []byte) {
	var l api.Live
	if err := json.Unmarshal(data, &l); err != nil || l.Delta == nil {
		s.t.Errorf("live event %s, %v", data, err)
		return
	}
	s.deltas, s.first = append(s.deltas, *l.Delta), append(s.first, l.First)
}

// Pieces that follow each other quickly become one live event, but never pieces of two calls, or of a call and a text.
// Only the first event of a response is marked so.
func TestPiecesOfAResponseAreJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := &sent{t: t}
		stream := &deltaStream{live: &live{clock: &clock.Clock{}, bus: got, watchers: got}, t: &Turn{Run: &state.State{ID: "r"}}}
		for _, d := range []model.Delta{
			{Text: "a"}, // at once: there was none before
			{Text: "b"}, {Thinking: "c"}, {Text: "d"},
			{CallID: "c1", Name: "t"}, {Arguments: "1"}, {Arguments: "2"},
			{Index: 1, CallID: "c2", Name: "u"}, {Index: 1, Arguments: "3"},
			{Index: 2, Arguments: "4"}, {Index: 2, CallID: "c3"},
			{Text: "e"},
		} {
			stream.add(d)
		}
		time.Sleep(deltaInterval)
		stream.add(model.Delta{Text: "f"})
		stream.add(model.Delta{Text: "g"})
		stream.restart()
		stream.add(model.Delta{Text: "h"})
		stream.flush()
		want := []model.Delta{
			{Text: "a"}, {Text: "bd", Thinking: "c"}, {CallID: "c1", Name: "t", Arguments: "12"},
			{Index: 1, CallID: "c2", Name: "u", Arguments: "3"}, {Index: 2, Arguments: "4"}, {Index: 2, CallID: "c3"},
			{Text: "ef"}, {Text: "g"}, {Text: "h"},
		}
		if diff := cmp.Diff(want, got.deltas); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]bool{true, false, false, false, false, false, false, false, true}, got.first); diff != "" {
			t.Error(diff)
		}
	})
}
