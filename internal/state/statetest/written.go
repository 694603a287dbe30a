package statetest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Written is a conversation that a test stores to measure what a store writes in addition to its texts.
type Written struct {
	Turns    int               // turns with a tool call; one more ends the run
	Eager    bool              // each commit claims the next turn
	Key      bool              // the submission has an idempotency key
	Metadata map[string]string // of the run
}

// text returns n random letters, so that the text does not compress.
func text(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(r.IntN(26)) //nolint:gosec // a letter
	}
	return string(b)
}

// Store submits a run and executes its turns, as a worker does: it records each response before the call starts, and
// the result with the commit. It returns the payload: the bytes of all texts, names and ids of calls, and arguments.
// The texts are random; the same seed gives the same ones.
func (w Written) Store(tb testing.TB, s state.RunStore, seed uint64) (payload int64) {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not a secret
	at := state.At(time.Now())
	token := func() string {
		var b [12]byte
		for i := range b {
			b[i] = byte(r.Uint32()) //nolint:gosec // the low bits
		}
		return base64.RawURLEncoding.EncodeToString(b[:])
	}
	said := func(size int) string { payload += int64(size); return text(r, size) }
	st := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "assistant", AgentVersion: 3, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal,
		Limits: state.Limits{MaxTurns: 50, WarnAt: 0.8}, Metadata: w.Metadata,
	}
	asked := state.UserText(said(200))
	asked.ID, asked.At = "msg_1_0", at
	st, err := st.Move(state.Submitted, state.Entry{At: at, Messages: []state.Message{asked}})
	if err != nil {
		tb.Fatal(err)
	}
	n := state.NewRun{State: st, RedeliveryDelay: long}
	if w.Key {
		n.Key, n.Fingerprint = said(26), token()+"123456"
	}
	for key, value := range w.Metadata {
		payload += int64(len(key) + len(value))
	}
	if _, err := s.Create(tb.Context(), n); err != nil {
		tb.Fatal(err)
	}
	claim := token()
	for turn := 1; turn <= w.Turns+1; turn++ {
		c, err := s.Claim(tb.Context(), state.ClaimRequest{Run: st.ID, Version: int64(turn), Token: claim, Worker: "worker-7d9f8b-x2x4q", Lease: long, RedeliveryDelay: long})
		if err != nil || c.Outcome != state.Claimed {
			tb.Fatalf("claim of turn %d: %s, %v", turn, c.Outcome, err)
		}
		at := state.At(time.Now())
		last := turn > w.Turns
		next := c.State.Append(w.response(*c.State, turn, at, last, said))
		if !last {
			if _, err := s.Record(tb.Context(), c.Lease, state.Record{From: c.State.LogLen(), Entries: next.Log[c.State.LogLen():]}); err != nil {
				tb.Fatal(err)
			}
		}
		from := c.State.LogLen()
		if !last {
			from++
		}
		commit := state.Commit{ID: c.Lease.Token, From: from, RedeliveryDelay: long}
		if claim = token(); w.Eager && !last {
			commit.EagerClaim = claim
		}
		if next, err = w.end(next, turn, at, last, said); err != nil {
			tb.Fatal(err)
		}
		commit.State = &next
		if _, err := s.Commit(tb.Context(), c.Lease, commit); err != nil {
			tb.Fatal(err)
		}
		if last {
			if err := s.MarkFinalized(tb.Context(), st.ID, commit.State.LogLen()); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return payload
}

// response returns the entry of a model response: text, and a call unless it is the last one.
func (w Written) response(s state.State, turn int, at state.Time, last bool, said func(int) string) state.Entry {
	m := state.Message{ID: fmt.Sprintf("msg_%d_0", s.LogLen()+1), Role: state.RoleAssistant, Turn: turn, At: at, Model: "claude-sonnet-4-5", Parts: []state.Part{{Type: state.PartText, Text: said(200)}}}
	stop := "end"
	if !last {
		arguments, _ := json.Marshal(map[string]string{"query": said(60)})
		m.Parts, stop = append(m.Parts, state.Part{Type: state.PartToolCall, ID: "call_" + said(24), Name: said(12), Arguments: string(arguments)}), "tool_calls"
	}
	cost := state.MicroUSD(4321 + turn)
	return state.Entry{
		Type: state.EntryModel, Turn: turn, Attempt: 1, At: at, Message: &m, StopReason: stop,
		Usage: &state.Usage{InputTokens: int64(1200 + 300*turn), OutputTokens: 96, CacheReadTokens: int64(1000 + 300*turn), ModelCalls: 1, CostUSD: &cost},
	}
}

// end returns s after the results of its calls and the transition that ends the turn.
func (w Written) end(s state.State, turn int, at state.Time, last bool, said func(int) string) (state.State, error) {
	s.ResponsePending = false
	end := state.Entry{At: at, Attempt: 1, Worker: "worker-7d9f8b-x2x4q", DurationMS: 1834}
	if last {
		out := s.Log[len(s.Log)-1].Message.Text()
		end.Output = &out
		return s.Move(state.EndCompleted, end)
	}
	call := s.Open[0]
	m := state.ToolResult(call.ID, said(300), false)
	m.ID, m.Turn, m.At = fmt.Sprintf("msg_%d_0", s.LogLen()+1), turn, at
	s = s.Append(state.Entry{Type: state.EntryTool, Turn: turn, Attempt: 1, At: at, DurationMS: 21, CallID: call.ID, Name: call.Name, Message: &m})
	return s.Move(state.NextTurn, end)
}
