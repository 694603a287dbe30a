package gateway_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// fragile kills the worker of every turn that calls it, until it is fixed.
type fragile struct{ mended atomic.Bool }

func (f *fragile) Generate(ctx context.Context, r model.Request, delta func(model.Delta)) (model.Response, error) {
	if !f.mended.Load() {
		panic("this turn kills its worker")
	}
	return scripted.New().Generate(ctx, r, delta)
}

func (f *fragile) install(cfg *worker.Config) {
	cfg.Providers = map[string]model.Provider{"scripted": f}
	cfg.LeaseDuration, cfg.RedeliveryDelay, cfg.SweepInterval, cfg.MaxAttempts = time.Second, 20*time.Millisecond, 10*time.Millisecond, 3
}

// letters waits for n dead letters.
func (s *deployment) letters(n int) []api.DeadLetter {
	s.t.Helper()
	for {
		page, err := s.client.Dead(s.t.Context(), 0, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(page.Items) >= n {
			return page.Items
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-s.t.Context().Done():
			s.t.Fatalf("%d dead letters, want %d", len(page.Items), n)
		}
	}
}

// A run whose hook failed continues after a replay once the hook works, and its dead letter names the hook's
// point.
func TestReplayAfterFailedHook(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"input", "stop"} {
		var mended atomic.Bool
		s := newDeployment(t, func(cfg *worker.Config) {
			cfg.Hooks = hookspec.Kinds(map[string]hook.Hook{"guard": hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
				if !mended.Load() {
					return hook.Answer{}, errors.New("no connection")
				}
				return hook.Answer{}, nil
			})})
		})
		s.put("guarded", `{"model": {"provider": "scripted", "responses": [{"text": "done"}]}, "hooks": {"`+point+`": [{"kind": "go", "name": "guard", "on_error": "deny"}]}}`)
		_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"guarded","input":"x"}`)
		if run["status"] != "failed" || run["reason"] != point+"_hook_failed" {
			t.Fatalf("run = %v", run)
		}
		l := s.letters(1)[0]
		if l.Kind != point+"_hook_failed" || l.Status != api.DeadOpen || !strings.Contains(l.Advice, point+" hook") {
			t.Errorf("letter = %+v", l)
		}
		mended.Store(true)
		if _, err := s.client.Replay(t.Context(), l.Seq); err != nil {
			t.Fatalf("replay: %v", err)
		}
		if end, err := s.client.Wait(t.Context(), run["id"].(string)); err != nil || end.Status != "completed" || *end.Output != "done" {
			t.Errorf("after the replay: %+v, %v", end, err)
		}
	}
}

// A poisoned run resumes where it stopped once the cause is fixed, however many replays are requested. Its
// transition says so (I1).
func TestReplayPoisonedRun(t *testing.T) {
	t.Parallel()
	broken := &fragile{}
	s := newDeployment(t, broken.install)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"adder","input":"x"}`)
	if run["status"] != "failed" || run["reason"] != "poisoned" {
		t.Fatalf("run = %v", run)
	}
	id := run["id"].(string)
	l := s.letters(1)[0]
	if l.Kind != "poisoned" || l.Status != api.DeadOpen || l.RunID == nil || *l.RunID != id || l.Attempts != 3 || *l.Agent != "adder" || l.Advice == "" {
		t.Errorf("letter = %+v", l)
	}
	broken.mended.Store(true)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := s.client.Replay(t.Context(), l.Seq); err != nil {
				t.Errorf("replay: %v", err)
			}
		})
	}
	group.Wait()
	for ev, err := range s.client.Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "run.finished" && ev.Reason == "completed" {
			break
		}
	}
	got, err := s.client.Get(t.Context(), id)
	if err != nil || got.Status != "completed" || *got.Output != "it is 42" {
		t.Errorf("run = %+v, %v", got, err)
	}
	turns, err := s.client.Turns(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, row := range turns {
		reasons = append(reasons, string(row.Reason))
	}
	if diff := cmp.Diff([]string{"submitted", "poisoned", "replayed", "next_turn", "completed"}, reasons); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
	again, err := s.client.Replay(t.Context(), l.Seq)
	if err != nil || again.Status != api.DeadReplayed || again.Replay.RunID != id || again.Replay.At.IsZero() {
		t.Errorf("second replay of the same letter = %+v, %v", again, err)
	}
	if got, _ := s.client.Get(t.Context(), id); got.Status != "completed" {
		t.Errorf("a second replay changed the run: %s", got.Status)
	}
}

// A message continues a poisoned run and drops the results of its last turn; then there is nothing left to
// replay. Deleting the run removes its dead letter.
func TestReplayAfterMessage(t *testing.T) {
	t.Parallel()
	broken := &fragile{}
	s := newDeployment(t, broken.install)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x"}`)
	id := run["id"].(string)
	l := s.letters(1)[0]
	broken.mended.Store(true)
	if _, err := s.client.Signal(t.Context(), id, api.SignalRequest{Message: []byte(`"go on"`)}); err != nil {
		t.Fatal(err)
	}
	for {
		got, err := s.client.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status == "completed" {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("run = %+v", got)
		}
	}
	_, err := s.client.Replay(t.Context(), l.Seq)
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != 409 || p.Code != api.CodeNotReplayable {
		t.Errorf("replay = %v, want a conflict", err)
	}
	if got, err := s.client.DeadLetter(t.Context(), l.Seq); err != nil || got.Status != api.DeadClosed {
		t.Errorf("letter = %+v, %v", got, err)
	}
	if err := s.client.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if page, err := s.client.Dead(t.Context(), 0, 0); err != nil || len(page.Items) != 0 {
		t.Errorf("dead letters after the run was deleted = %+v, %v; want none", page.Items, err)
	}
}

// A refused submission is submitted again once its agent exists: one run, however often it is replayed.
func TestReplaySubmission(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.bus.Submit("default", "later", []byte(`{"input":"x"}`), map[string]string{"Turnpike-Reply": "answers"})
	l := s.letters(1)[0]
	if l.Kind != "submission" || l.Status != api.DeadOpen || l.Agent == nil || *l.Agent != "later" || l.RunID != nil || l.Replay != nil {
		t.Errorf("letter = %+v", l)
	}
	path := "/v1/dead/" + strconv.FormatUint(l.Seq, 10)
	if code, _, p := s.call("POST", path+"/replay", ""); code != 404 || p["code"] != api.CodeAgentNotFound {
		t.Errorf("replay before the fix = %d %v", code, p)
	}
	s.put("later", `{model: {provider: scripted, responses: [{text: "better late"}]}}`)
	runs := make(chan string, 8)
	var group sync.WaitGroup
	for range cap(runs) {
		group.Go(func() {
			got, err := s.client.Replay(t.Context(), l.Seq)
			if err != nil || got.Replay == nil {
				t.Errorf("replay = %+v, %v", got, err)
				return
			}
			runs <- got.Replay.RunID
		})
	}
	group.Wait()
	close(runs)
	first := <-runs
	for id := range runs {
		if id != first {
			t.Errorf("replayed as %s and as %s", first, id)
		}
	}
	if page, err := s.client.List(t.Context(), nil); err != nil || len(page.Items) != 1 {
		t.Errorf("%d runs, %v; want 1", len(page.Items), err)
	}
	for len(s.bus.Replies("answers")) < 2 { // the refusal, and the run
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("no reply to the submitter")
		}
	}
	_, _, shown := s.call("GET", path, "")
	_, _, doc := s.call("GET", "/openapi.json", "")
	schema := doc["components"].(map[string]any)["schemas"].(map[string]any)["DeadLetter"].(map[string]any)
	documented := slices.Sorted(maps.Keys(schema["properties"].(map[string]any)))
	if diff := cmp.Diff(documented, slices.Sorted(maps.Keys(shown))); diff != "" {
		t.Errorf("letter: documented (-) and returned (+):\n%s", diff)
	}
	if shown["status"] != "replayed" {
		t.Errorf("letter = %v", shown)
	}
}

// A replayed submission runs under its sender's key: the sender's repetition returns that run and starts no other.
func TestReplaySubmissionUnderItsKey(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.bus.Submit("default", "later", []byte(`{"input":"x"}`), map[string]string{"Nats-Msg-Id": "mine"})
	l := s.letters(1)[0]
	s.put("later", `{model: {provider: scripted, responses: [{text: "better late"}]}}`)
	replayed, err := s.client.Replay(t.Context(), l.Seq)
	if err != nil || replayed.Replay == nil {
		t.Fatal(replayed, err)
	}
	code, _, run := s.call("POST", "/v1/runs", `{"agent":"later","input":"x"}`, "Idempotency-Key", "mine")
	if code >= 400 || run["id"] != replayed.Replay.RunID {
		t.Errorf("repetition under the key = %d %v, want the run %s of the replay", code, run, replayed.Replay.RunID)
	}
}

// If the run of a replayed submission is deleted, its letter is closed and says so: the replay does not answer that a
// run is missing, and makes no second run.
func TestReplaySubmissionAfterDeletion(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "mine"} {
		t.Run("key "+key, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			headers := map[string]string{}
			if key != "" {
				headers["Nats-Msg-Id"] = key
			}
			s.bus.Submit("default", "later", []byte(`{"input":"x"}`), headers)
			l := s.letters(1)[0]
			s.put("later", `{model: {provider: scripted, responses: [{text: "better late"}]}}`)
			replayed, err := s.client.Replay(t.Context(), l.Seq)
			if err != nil || replayed.Replay == nil {
				t.Fatal(replayed, err)
			}
			s.ended(replayed.Replay.RunID)
			if err := s.client.Delete(t.Context(), replayed.Replay.RunID); err != nil {
				t.Fatal(err)
			}
			shown, err := s.client.DeadLetter(t.Context(), l.Seq)
			if err != nil || shown.Status != api.DeadClosed || !strings.Contains(shown.Advice, "was deleted") {
				t.Errorf("letter = %+v, %v; want a closed one that says that the run was deleted", shown, err)
			}
			code, _, p := s.call("POST", "/v1/dead/"+strconv.FormatUint(l.Seq, 10)+"/replay", "")
			if detail, _ := p["detail"].(string); code != 409 || p["code"] != api.CodeNotReplayable || !strings.Contains(detail, "submit its data as a new run") {
				t.Errorf("second replay = %d %v, want 409 %s with the remedy", code, p, api.CodeNotReplayable)
			}
		})
	}
}

func TestDeadLetterErrors(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.bus.Submit("default", "hello", []byte(`{"inptu":"x"}`), nil)
	l := s.letters(1)[0]
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/v1/dead/x", 400, api.CodeInvalidID},
		{"GET", "/v1/dead/0", 400, api.CodeInvalidID},
		{"GET", "/v1/dead/99", 404, api.CodeLetterNotFound},
		{"POST", "/v1/dead/99/replay", 404, api.CodeLetterNotFound},
		{"POST", "/v1/dead/" + strconv.FormatUint(l.Seq, 10) + "/replay", 400, api.CodeInvalidJSON},
	} {
		if code, _, p := s.call(c.method, c.path, ""); code != c.status || p["code"] != c.code {
			t.Errorf("%s %s = %d %v, want %d %s", c.method, c.path, code, p, c.status, c.code)
		}
	}
}

// The number of a letter of another tenant, and one that was never given, do not lead to the letter after it.
func TestDeadLetterAfterAMissingOne(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	for _, tenant := range []string{"other", "acme"} {
		if err := s.bus.DeadLetter(t.Context(), deadOf(tenant)); err != nil {
			t.Fatal(err)
		}
	}
	c := s.client("acme", access.Viewer, access.Operator)
	for seq, found := range map[uint64]bool{1: false, 2: true, 3: false} {
		if l, err := c.DeadLetter(t.Context(), seq); found != (err == nil) || found != (l.Seq == seq) || !found && !errors.Is(err, api.ErrNotFound) {
			t.Errorf("letter %d: %+v, %v", seq, l, err)
		}
		_, err := c.Replay(t.Context(), seq)
		if p, _ := errors.AsType[*api.Problem](err); p == nil || p.Code == api.CodeLetterNotFound == found { // the agent does not exist
			t.Errorf("replay of letter %d: %v", seq, err)
		}
	}
}
