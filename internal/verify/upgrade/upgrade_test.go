package upgrade_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/verify/invariant"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

var update = flag.Bool("update", false, "write the fixtures of this build's format, if there are none")

// Every run that an earlier build has left behind is finished by this one, whatever
// it stood at, and keeps the log that it had (I1, I2).
func TestFrozen(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		paths, err := filepath.Glob(filepath.Join("testdata", "v*", store+".json"))
		if err != nil || len(paths) != state.Format {
			t.Fatalf("%d fixtures of %s, want one for each of %d formats: see the package's comment (%v)", len(paths), store, state.Format, err)
		}
		for _, path := range paths {
			t.Run(strings.TrimSuffix(strings.TrimPrefix(path, "testdata/"), ".json"), func(t *testing.T) {
				t.Parallel()
				f := thaw(t, path)
				s := newDeployment(t, store, &f)
				before := map[string][]state.Entry{}
				for name, run := range f.Runs {
					if got := stands(s.get(t, run.ID)); got != run.Frozen {
						t.Errorf("%s is %s before anybody took it up, want %s", name, got, run.Frozen)
					}
					log, err := s.Store.Log(t.Context(), state.RunID(run.ID), 0, 0)
					if err != nil || len(log) != run.Events {
						t.Errorf("log of %s has %d entries, want %d: %v", name, len(log), run.Events, err)
					}
					before[name] = log
				}
				close(s.gate)
				s.work(t, 100)
				if _, err := s.client.Replay(t.Context(), 1); err != nil {
					t.Errorf("replay the dead letter: %v", err)
				}
				for _, name := range slices.Sorted(maps.Keys(f.Runs)) {
					s.finish(t, name, f.Runs[name], before[name])
				}
				if n := s.started[f.Runs["running"].ID+" stall"]; n != 0 {
					t.Errorf("I4: a tool that is not idempotent was started %d times more", n)
				}
				runs, err := s.client.List(t.Context(), map[string][]string{"limit": {"100"}})
				if err != nil || len(runs.Items) < len(f.Runs) {
					t.Errorf("%d runs are listed, want %d and their children: %v", len(runs.Items), len(f.Runs), err)
				}
			})
		}
	}
}

// finish sees a run to its end.
func (s *deployment) finish(t *testing.T, name string, f frozenRun, before []state.Entry) {
	t.Helper()
	var run api.Run
	answered := int64(0)
	ended := func() error {
		run = s.get(t, f.ID)
		if children, err := s.client.List(t.Context(), map[string][]string{"parent": {f.ID}}); err == nil {
			for _, c := range children.Items {
				if c.Waiting != nil && c.Version > answered {
					answered = c.Version
					s.answer(t, c)
				}
			}
		}
		if run.Terminal() {
			return nil
		}
		if run.Waiting != nil && run.Version > answered {
			answered = run.Version
			s.answer(t, run)
		}
		return fmt.Errorf("it is %s, version %d", stands(run), run.Version)
	}
	eventually(t, name+" ends", ended)
	if f.Say != "" {
		version := run.Version
		s.signal(t, f.ID, api.SignalRequest{Message: text(f.Say)})
		f.Output = f.Say
		eventually(t, name+" ends again", func() error {
			if err := ended(); err != nil || run.Version > version {
				return err
			}
			return errors.New("it does not go on")
		})
	}
	if got := stands(run); got != f.Want || f.Output != "" && (run.Output == nil || *run.Output != f.Output) {
		t.Errorf("%s is %s with %v, want %s with %q", name, got, run.Output, f.Want, f.Output)
	}
	log, err := s.Store.Log(t.Context(), state.RunID(f.ID), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, log[:len(before)]); diff != "" {
		t.Errorf("I1: what %s had in its log has changed:\n%s", name, diff)
	}
	if err := errors.Join(invariant.Log(log, run.Version), invariant.Paired(state.View(log))); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestFreeze writes the fixtures of this build's format.
func TestFreeze(t *testing.T) {
	if !*update {
		return
	}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			path := fixture(state.Format, store)
			if _, err := os.Stat(path); err == nil {
				t.Fatalf("%s is there: what an earlier build wrote must not be written by this one", path)
			}
			if err := freeze(t, store).write(path); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// freeze plays the stories up to where they are frozen.
func freeze(t *testing.T, store string) frozen {
	t.Helper()
	s := newDeployment(t, store, nil)
	s.Store.SetFormat(state.Format)
	for _, name := range []string{"plain", "files"} { // others delegate to them
		s.put(t, name)
	}
	for name := range agents {
		s.put(t, name)
	}
	f := frozen{Runs: map[string]frozenRun{}}
	submit := func(name string) {
		r := stories[name].submit
		r.Agent, r.Input = stories[name].agent, text("go")
		run, err := s.client.Submit(t.Context(), r, "key of "+name)
		if err != nil {
			t.Fatal(err)
		}
		f.Runs[name] = frozenRun{ID: run.ID}
	}
	await := func(name, where string) {
		eventually(t, name+" stands at "+where, func() error {
			if got := stands(s.get(t, f.Runs[name].ID)); got != where {
				return errors.New("it is at " + got)
			}
			return nil
		})
	}

	s.work(t, 2)
	submit("poisoned")
	for i := range 5 {
		eventually(t, "the turn is taken", func() error {
			if s.stalls() != i+1 {
				return errors.New("it is not")
			}
			return nil
		})
		due, err := s.Store.Evict(t.Context(), "w1", 100, time.Minute)
		if err != nil || len(due) != 1 {
			t.Fatalf("%d turns taken away, %v", len(due), err)
		}
		if err := s.Bus.PublishTurn(t.Context(), bus.Turn{Run: due[0].Run, Version: due[0].Version, Priority: due[0].Priority}, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	await("poisoned", "poisoned")
	batch := api.BatchRequest{MaxParallel: 1}
	for name, story := range stories {
		switch {
		case strings.HasPrefix(name, "batch"):
			batch.Runs = append(batch.Runs, api.SubmitRequest{Agent: story.agent, Input: text("go")})
		case !story.late && name != "poisoned" && story.frozen != "running":
			submit(name)
		}
	}
	accepted, err := s.client.SubmitBatch(t.Context(), batch, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range accepted.RunIDs {
		f.Runs[fmt.Sprintf("batch%d", i)] = frozenRun{ID: id}
	}
	for name, story := range stories {
		if name == "approved" {
			await(name, "waiting_approval")
		} else if !story.late && story.frozen != "running" {
			await(name, story.frozen)
		}
	}
	eventually(t, "the other child of parent ends", func() error {
		children, err := s.client.List(t.Context(), map[string][]string{"parent": {f.Runs["parent"].ID}})
		if err != nil || !slices.ContainsFunc(children.Items, func(r api.Run) bool { return r.Status == "completed" }) {
			return fmt.Errorf("it does not: %w", err)
		}
		return nil
	})

	// Two turns that stall take both slots: nobody takes what comes now.
	submit("running")
	submit("running_too")
	eventually(t, "two turns stall", func() error {
		if s.stalls() != 5+4 {
			return errors.New("not yet")
		}
		return nil
	})
	for name, story := range stories {
		if story.late {
			submit(name)
		}
	}
	s.signal(t, f.Runs["approved"].ID, api.SignalRequest{SignalID: "approved", Approvals: []api.Approval{{CallID: "c1", Decision: "approve", Arguments: json.RawMessage(`{"amount":400}`)}}})
	s.signal(t, f.Runs["steered"].ID, api.SignalRequest{SignalID: "said", Message: text("and this")})
	if _, err := s.client.Cancel(t.Context(), f.Runs["aborted"].ID, "no more"); err != nil {
		t.Fatal(err)
	}
	for name, run := range f.Runs {
		story := stories[name]
		await(name, story.frozen)
		log, err := s.Store.Log(t.Context(), state.RunID(run.ID), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Runs[name] = frozenRun{ID: run.ID, Frozen: story.frozen, Want: story.want, Output: story.output, Say: story.say, Events: len(log)}
	}
	if s.redis != nil {
		if f.Keys, err = readKeys(t.Context(), s.redis); err != nil {
			t.Fatal(err)
		}
	}
	if f.Streams, err = readStreams(t.Context(), s.js); err != nil {
		t.Fatal(err)
	}
	f.Streams = withoutRepeats(f.Streams)
	return f
}

func (s *deployment) put(t *testing.T, name string) {
	t.Helper()
	if _, err := s.client.PutAgent(t.Context(), name, []byte("{name: "+name+", "+agents[name][1:])); err != nil {
		t.Fatal(err)
	}
}
