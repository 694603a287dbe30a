package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each way in which the service creates or changes a run tells those who watch the run, once.
func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	s := newTaking(t, &orders{})
	var told []state.RunID
	s.core.cfg.Changed = func(tenant string, id state.RunID) {
		if tenant != "acme" {
			t.Errorf("run %s is one of %s", id, tenant)
		}
		told = append(told, id)
	}
	step := func(what string, want ...state.RunID) {
		t.Helper()
		if !slices.Equal(told, want) {
			t.Errorf("%s: told of %v, want %v", what, told, want)
		}
		told = nil
	}
	submit := func() state.State {
		t.Helper()
		made, err := s.Submissions.Submit(t.Context(), s.c, Submission{Request: api.SubmitRequest{Agent: "a", Input: api.Text("hi")}, Body: []byte(`{}`), Key: "k", Source: "http"})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	run := submit()
	step("a run", run.ID)
	submit()
	step("the same run again")
	batch := func() api.BatchAccepted {
		t.Helper()
		made, err := s.Submissions.SubmitBatch(t.Context(), s.c, Submission{Body: []byte(`{"runs": [{"agent": "a", "input": "1"}, {"agent": "a", "input": "2"}], "max_parallel": 1}`), Key: "b", Source: "http"})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	made := batch()
	step("a batch", state.RunID(made.RunIDs[0]), state.RunID(made.RunIDs[1]))
	batch()
	step("the same batch again")
	known := state.State{ID: state.FirstIDAt(time.Now()), Tenant: "acme", Agent: "a", AgentVersion: 1, CreatedAt: state.At(time.Now())}
	for _, want := range [][]state.RunID{{known.ID}, nil} {
		if lost, err := s.Runs.Lose(t.Context(), known); err != nil || lost.Transition.Reason != state.EndLost {
			t.Errorf("a lost run: %+v, %v", lost, err)
		}
		step("a lost run", want...)
	}
}

// busy is a store that reports each new run as one of a noisy tenant.
type busy struct{ state.Store }

func (s busy) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	made, err := s.Store.Create(ctx, n)
	made.Noisy = true
	return made, err
}

// The runs of a batch make their tenant noisy like other runs, but not when the batch is submitted again.
func TestBatchOfNoisyTenant(t *testing.T) {
	t.Parallel()
	s := newTaking(t, &orders{})
	s.core.store = busy{s.core.store}
	body := fmt.Appendf(nil, `{"runs": [%s]}`, strings.TrimSuffix(strings.Repeat(`{"agent": "a", "input": "x"},`, 5), ","))
	for range 3 {
		if _, err := s.Submissions.SubmitBatch(t.Context(), s.c, Submission{Body: body, Key: "b", Source: "http"}); err != nil {
			t.Fatal(err)
		}
	}
	if level := s.core.noisy.levels["acme"]; level != 5*noisyUp {
		t.Errorf("the level of the tenant is %d, want %d", level, 5*noisyUp)
	}
}

// A stored definition is published, whether it is new, changed or the same as before, and is read as such.
func TestSavedAgentsArePublished(t *testing.T) {
	t.Parallel()
	s := newTaking(t, &orders{})
	for i, text := range []string{"one", "two", "two"} {
		saved, err := s.Agents.Put(t.Context(), s.c, "b", []byte("name: b\nmodel: {provider: scripted, responses: [{text: "+text+"}]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if a := saved.Agent; a.Status != api.StatusPublished || a.Version != min(i+1, 2) || saved.First != (i == 0) {
			t.Errorf("definition %d: version %d with the status %q, first %v", i+1, a.Version, a.Status, saved.First)
		}
	}
	if a, err := s.Agents.Get(t.Context(), s.c, "b", 1); err != nil || a.Status != api.StatusPublished {
		t.Errorf("version 1 has the status %q, %v", a.Status, err)
	}
	if page, err := s.Agents.List(t.Context(), s.c, Page{}); err != nil || len(page.Items) != 2 || page.Items[1].Status != api.StatusPublished {
		t.Errorf("the list has %d agents, %v", len(page.Items), err)
	}
}

// A dead letter of a trigger is not replayed if the trigger is gone, would ignore the message, or the message is lost.
func TestReplaysThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newTaking(t, &orders{})
	s.runner(api.TriggerSettings{Filter: "event.ok", Run: &api.HookRun{Agent: "a"}})
	letter := func(name, message string) bus.DeadLetter {
		data, err := json.Marshal(deadMessage{Subject: "orders", Data: []byte(message)})
		if err != nil {
			t.Fatal(err)
		}
		return bus.DeadLetter{Kind: bus.DeadTrigger, Tenant: "acme", Key: name, Message: "ORDERS:1:1", Data: string(data)}
	}
	again := func(d bus.DeadLetter, want string) {
		t.Helper()
		id, err := s.Triggers.again(t.Context(), s.c, d)
		if p, _ := errors.AsType[*api.Problem](err); want == "" && (err != nil || id == "") || want != "" && (p == nil || p.Code != want) {
			t.Errorf("%+v: run %q, %v, want %q", d, id, err, want)
		}
	}
	again(letter("t", `{"ok": true}`), "")
	again(letter("t", `{"ok": false}`), api.CodeNotReplayable)
	again(bus.DeadLetter{Tenant: "acme", Key: "t", Data: "{"}, api.CodeNotReplayable)
	again(letter("nobody", `{"ok": true}`), api.CodeTriggerNotFound)
	stored, raw, err := s.Triggers.load(t.Context(), "acme", "t")
	if err != nil {
		t.Fatal(err)
	}
	stored.Deleted = true
	deleted, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.core.store.ReplaceDocument(t.Context(), state.TriggersOf("acme"), "t", raw, deleted); err != nil {
		t.Fatal(err)
	}
	again(letter("t", `{"ok": true}`), api.CodeTriggerNotFound)
}
