//go:build !nosdk

package worker_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// handled passes requests to a handler without a network, so that a test can use a fake clock.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	in := r.Clone(r.Context())
	in.Body = io.NopCloser(bytes.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, in)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// A run whose calls are back to back reads at least 90 % of each prompt from the cache. With pauses of ten
// minutes, auto reduces the input cost by at least 40 % against five-minute entries for every call. The figures
// are modelled: the cache of the mock model at list prices.
func TestPromptCache(t *testing.T) {
	t.Parallel()
	const turns = 20
	// converse makes the calls of a run, with a pause before each but the first.
	converse := func(t *testing.T, policy model.Cache, pause time.Duration, tools bool) (run state.State, calls []state.Entry) {
		t.Helper()
		figures := state.Figures{} // of the agent
		synctest.Test(t, func(t *testing.T) {
			script := mockmodel.Script{}
			for range turns - 1 {
				r := mockmodel.Response{Scripted: model.Scripted{Text: strings.Repeat("answer", 400)}}
				if tools {
					r.ToolCalls = []model.ScriptedCall{{ID: "c", Name: "pick"}}
				}
				script.Responses = append(script.Responses, r)
			}
			script.Responses = append(script.Responses, mockmodel.Response{Scripted: model.Scripted{Text: "The end."}})
			mock, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{script}})
			if err != nil {
				t.Fatal(err)
			}
			s := newDeployment(t)
			cfg := s.config()
			cfg.Providers["anthropic"] = anthropic.New(anthropic.Config{APIKey: "key", Client: &http.Client{Transport: handled{mock}}})
			cfg.Prices, cfg.SweepInterval, cfg.HeartbeatInterval = model.DefaultPrices(), 10*time.Second, 10*time.Second
			s.work(cfg)
			def := agent.Definition{
				Name:  "a",
				Model: agent.Model{Provider: "anthropic", Name: "claude-haiku-4-5", Settings: model.Settings{Cache: policy}},
			}
			if tools {
				def.Tools = []agent.Tool{{Name: "pick", Kind: toolspec.Client, Schema: json.RawMessage(`{"type":"object","description":"` + strings.Repeat("instruct", 1000) + `"}`)}}
			}
			id := s.start(s.createFor(def, state.Limits{MaxTurns: 100}))
			for n := 1; n < turns; n++ {
				want := state.EndCompleted
				if tools {
					want = state.WaitingClientTool
				}
				s.await(id, "call", func(st state.State) bool { return st.Turn == n && st.Transition.Reason == want })
				time.Sleep(pause) // the bubble's clock
				if tools {
					s.signal(id, state.Signal{ID: time.Now().String(), ToolResults: []state.SignalResult{{CallID: "c", Content: strings.Repeat("result", 400)}}})
					continue
				}
				next := state.UserText("And?")
				s.signal(id, state.Signal{ID: time.Now().String(), Message: &next})
			}
			run = s.await(id, "the end", func(st state.State) bool { return st.Turn == turns && st.Transition.Reason == state.EndCompleted })
			log, err := s.store.Log(t.Context(), id, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range log {
				if e.Type == state.EntryModel {
					calls = append(calls, e)
				}
			}
			hours, err := s.store.Figures(t.Context(), state.DefaultTenant, time.Now().Add(-12*time.Hour), time.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hours {
				for _, series := range h.Series {
					figures.Add(series.Figures)
				}
			}
		})
		expired := run.Usage.CacheExpiredCostUSD
		if expired == nil {
			expired = new(state.MicroUSD)
		}
		if u := run.Usage; figures[state.CounterCacheExpired] != u.CacheExpiredTokens || figures[state.CounterCacheExpiredCost] != int64(*expired) {
			t.Errorf("the agent's figures are %v, the usage of its run %+v", figures, u)
		}
		if len(calls) != turns {
			t.Fatalf("%d calls, want %d", len(calls), turns)
		}
		return run, calls
	}
	// read fails unless each call reads most of the previous call's prompt from the cache. A short prompt is
	// not cached.
	read := func(t *testing.T, calls []state.Entry) {
		t.Helper()
		for i := 1; i < len(calls); i++ {
			if before, now := calls[i-1].Usage.InputTokens, calls[i].Usage.CacheReadTokens; before >= 2048 && now*10 < before*9 {
				t.Errorf("call %d read %d of the %d tokens that the call before it sent", i, now, before)
			}
		}
	}
	cost := func(run state.State) float64 {
		u := run.Usage
		u.OutputTokens = 0
		return float64(*model.DefaultPrices().Cost("claude-haiku-4-5", u))
	}

	t.Run("back to back", func(t *testing.T) {
		t.Parallel()
		run, calls := converse(t, "", 10*time.Second, true)
		read(t, calls)
		if calls[5].Cache != "5m" || run.Usage.CacheExpiredTokens != 0 || run.Usage.CacheExpiredCostUSD != nil {
			t.Errorf("lifetime %q, usage %+v", calls[5].Cache, run.Usage)
		}
	})
	t.Run("without tools, asked for", func(t *testing.T) {
		t.Parallel()
		_, calls := converse(t, model.CacheFiveMinutes, 10*time.Second, false)
		read(t, calls)
	})
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		run, calls := converse(t, model.CacheOff, 10*time.Second, true)
		if u := run.Usage; u.CacheReadTokens+u.CacheWriteTokens != 0 || calls[5].Cache != "" {
			t.Errorf("lifetime %q, usage %+v", calls[5].Cache, u)
		}
	})
	t.Run("an hour", func(t *testing.T) {
		t.Parallel()
		_, calls := converse(t, model.CacheHour, 10*time.Minute, true)
		read(t, calls)
		if calls[0].Cache != "1h" {
			t.Errorf("lifetime %q", calls[0].Cache)
		}
	})
	t.Run("ten minutes apart", func(t *testing.T) {
		t.Parallel()
		short, _ := converse(t, model.CacheFiveMinutes, 10*time.Minute, true)
		auto, calls := converse(t, model.CacheAuto, 10*time.Minute, true)
		less := 1 - cost(auto)/cost(short)
		t.Logf("input costs %.0f micro-dollars with entries of 5 minutes, %.0f with auto: %.0f %% less", cost(short), cost(auto), 100*less)
		if less < 0.4 {
			t.Errorf("input costs %.0f micro-dollars with auto and %.0f with entries of 5 minutes; want a reduction of at least 40 %%", cost(auto), cost(short))
		}
		// The worker sees the first pause after the first call.
		if calls[0].Cache != "5m" || calls[1].Cache != "1h" || calls[turns-1].Cache != "1h" {
			t.Errorf("lifetimes %q, %q, …, %q", calls[0].Cache, calls[1].Cache, calls[turns-1].Cache)
		}
		if u := auto.Usage; u.CacheExpiredTokens != calls[1].Usage.CacheExpiredTokens || u.CacheExpiredTokens == 0 || u.CacheExpiredCostUSD == nil {
			t.Errorf("with auto, the run resent %d tokens", u.CacheExpiredTokens)
		}
		// For each entry of five minutes, the run paid the difference between writing and reading.
		want := float64(short.Usage.CacheExpiredTokens) * (1.25 - 0.1)
		if got := short.Usage.CacheExpiredCostUSD; got == nil || float64(*got) < 0.99*want || float64(*got) > 1.01*want {
			t.Errorf("%d expired tokens cost %v, want %.0f", short.Usage.CacheExpiredTokens, got, want)
		}
	})
}
