package explore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// person is a user who repeats a request to the gateway until it succeeds.
type person struct {
	p *process
	s *deployment

	gate *gateway.Gateway
	at   *process
}

// wants starts a person. do returns when the person is done.
func (s *deployment) wants(name string, do func(*person)) {
	s.users++
	u := &person{p: s.newProcess(name), s: s}
	s.running.Go(func() {
		do(u)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.users--
		s.wake()
	})
}

// decides waits until the explorer lets the person act, and reports whether it did.
func (u *person) decides(what string, will bool, ready func() bool) bool {
	_, err := ask(u.p.ctx, u.p, request{name: u.p.name + ": " + what, ready: ready, will: will, person: true}, func() (bool, error) { return true, nil })
	return err == nil
}

// post is send for POST.
func (u *person) post(path, key string, body any) (int, []byte) {
	return u.send(http.MethodPost, path, key, body)
}

// send repeats a request until the gateway's answer is final, below 500, and returns that.
func (u *person) send(method, path, key string, body any) (int, []byte) {
	b, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("encode request: %v", err)) // a bug in this package
	}
	for {
		if u.gate == nil {
			if u.at, u.gate, err = u.s.front(); err != nil {
				panic(fmt.Sprintf("start gateway: %v", err)) // as above
			}
		}
		r := httptest.NewRequestWithContext(u.at.ctx, method, "http://localhost"+path, bytes.NewReader(b))
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		answered := make(chan struct{})
		h, at := u.gate.Handler(), u.at
		u.s.running.Go(func() {
			h.ServeHTTP(w, r)
			close(answered)
		})
		select {
		case <-answered:
			u.s.mu.Lock()
			u.p.hears(fmt.Sprint(path, w.Code), nil, nil)
			u.s.mu.Unlock()
			if w.Code < http.StatusInternalServerError {
				return w.Code, w.Body.Bytes()
			}
		case <-at.gone:
			u.gate = nil
		case <-u.s.over:
			return 0, nil
		}
		select {
		case <-u.s.over:
			return 0, nil
		case <-time.After(time.Second):
		}
	}
}

// submit sends the scenario's submission.
func (u *person) submit() {
	if !u.decides("submit", false, func() bool { return true }) {
		return
	}
	run := api.SubmitRequest{Agent: u.s.sc.Agent, Input: json.RawMessage(`"go"`)}
	path, req := "/v1/runs", any(run)
	if u.s.sc.Batch {
		path, req = "/v1/runs:batch", api.BatchRequest{Runs: []api.SubmitRequest{run, run}, MaxParallel: 1}
	}
	code, body := u.post(path, "key", req)
	if code == 0 {
		return
	}
	var answer struct {
		ID     state.RunID   `json:"id"`
		RunIDs []state.RunID `json:"run_ids"` // of a batch
	}
	if err := json.Unmarshal(body, &answer); err != nil || code != http.StatusAccepted {
		u.s.violate("I1: a submission is answered %d %s", code, body)
		return
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if !u.s.sc.Batch {
		answer.RunIDs = []state.RunID{answer.ID}
	}
	u.s.accepted = append(u.s.accepted, answer.RunIDs...)
}

// due reports whether users may act on the run: there is one, and it has ended if they wait for that.
func (s *deployment) due() bool {
	id, ok := s.root()
	if !ok || !s.sc.Ended {
		return ok
	}
	r, ok := s.record(id)
	return ok && r.Status.Terminal()
}

// root returns the submitted run, once there is one.
func (s *deployment) root() (state.RunID, bool) {
	if len(s.accepted) == 0 {
		return "", false
	}
	return s.accepted[0], true
}

// cancel aborts the run, at any moment or never.
func (u *person) cancel() {
	if !u.decides("cancel", true, func() bool { _, ok := u.s.root(); return ok }) {
		return
	}
	id, _ := u.s.root()
	code, body := u.post("/v1/runs/"+string(id)+"/cancel", "", api.CancelRequest{Reason: "enough"})
	if code != 0 && code != http.StatusAccepted && code != http.StatusConflict && code != http.StatusNotFound {
		u.s.violate("I7: a cancellation is answered %d %s", code, body)
	}
}

// remove deletes the run, at any moment or never.
func (u *person) remove() {
	if !u.decides("delete", true, u.s.due) {
		return
	}
	id, _ := u.s.root()
	code, body := u.send(http.MethodDelete, "/v1/runs/"+string(id), "", nil)
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	switch code {
	case 0:
	case http.StatusConflict:
		if len(u.s.deleted) > 0 {
			u.s.violate("I1: a deletion is refused, and has deleted %d runs", len(u.s.deleted))
		}
	case http.StatusNoContent, http.StatusNotFound: // 404: the first answer was lost
		u.s.gone = true
	default:
		u.s.violate("I1: a deletion is answered %d %s", code, body)
	}
}

// pick answers the client tool that the run waits for, each time that it does.
func (u *person) pick() {
	open := func() (state.RunID, string) {
		id, ok := u.s.root()
		if !ok {
			return "", ""
		}
		r, _ := u.s.record(id)
		for _, o := range r.Header.Open {
			if r.Status == state.Waiting && slices.Contains(r.Awaits, state.AwaitCall(state.NeedResult, o.ID)) {
				return id, o.ID
			}
		}
		return "", ""
	}
	for u.decides("answer", false, func() bool { id, _ := open(); return id != "" }) {
		if id, call := open(); id != "" {
			u.signal(id, api.SignalRequest{SignalID: "picked " + call, ToolResults: []api.ToolResult{{CallID: call, Content: json.RawMessage(`"it"`)}}})
		}
	}
}

// forks forks the run from each of its turns but the last, after its end or never.
func (u *person) forks() {
	if !u.decides("fork", true, u.s.due) {
		return
	}
	id, _ := u.s.root()
	r, _ := u.s.record(id)
	for turn := range r.Header.Turn {
		code, body := u.post("/v1/runs/"+string(id)+"/fork", fmt.Sprint("fork ", turn), api.ForkRequest{Turn: &turn, Input: json.RawMessage(`"` + remark + `"`)})
		if code == 0 {
			return
		}
		var answer struct {
			ID state.RunID `json:"id"`
		}
		u.s.mu.Lock()
		if err := json.Unmarshal(body, &answer); err != nil || code != http.StatusAccepted {
			u.s.violate("I1: a fork from turn %d is answered %d %s", turn, code, body)
		}
		u.s.forks[answer.ID] = turn
		u.s.mu.Unlock()
	}
}

const remark = "and another thing"

// remarks sends a message, at any moment or never.
func (u *person) remarks() {
	if !u.decides("say something", true, u.s.due) {
		return
	}
	id, _ := u.s.root()
	u.signal(id, api.SignalRequest{SignalID: "remark", Message: json.RawMessage(`"` + remark + `"`)})
}

// interrupts sends the same message, and interrupts the run with it.
func (u *person) interrupts() {
	if !u.decides("interrupt", true, u.s.due) {
		return
	}
	id, _ := u.s.root()
	u.signal(id, api.SignalRequest{SignalID: "remark", Message: json.RawMessage(`"` + remark + `"`), Mode: api.ModeInterrupt})
}

// withdraws sends the same message, and withdraws the turn in flight with it.
func (u *person) withdraws() {
	if !u.decides("withdraw", true, u.s.due) {
		return
	}
	id, _ := u.s.root()
	u.signal(id, api.SignalRequest{SignalID: "remark", Message: json.RawMessage(`"` + remark + `"`), Mode: api.ModeRollback})
}

func (u *person) signal(id state.RunID, r api.SignalRequest) {
	u.s.mu.Lock()
	gone := u.s.gone
	u.s.mu.Unlock()
	code, body := u.post("/v1/runs/"+string(id)+"/signals", "", r)
	if code != 0 && code != http.StatusAccepted && code != http.StatusConflict && code != http.StatusNotFound {
		u.s.violate("I1: a signal is answered %d %s", code, body)
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if code == http.StatusAccepted && gone {
		u.s.violate("I1: a signal to a deleted run is accepted")
	}
	if code == http.StatusAccepted && r.Message != nil {
		u.s.said = true
	}
}
