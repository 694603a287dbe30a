package loop_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// meanings are the meanings of the failure classes, in the order of the table in the docs.
var meanings = []struct {
	class model.Class
	means string
}{
	{model.PromptTooLong, "the prompt does not fit into the model's window, or never into a limit of tokens a minute"},
	{model.RateLimited, "too many requests or tokens; `Retry-After` or the body may say how long"},
	{model.Overloaded, "the provider failed (5xx), or its answer was malformed; also an open circuit breaker"},
	{model.Transport, "no answer, a broken stream, a redirect, an answer that is not a stream"},
	{model.Timeout, "the model's `timeout` is over, or the provider's own"},
	{model.Quota, "money or a day's allowance is used up"},
	{model.Auth, "no key, a wrong one, or one that may not do this"},
	{model.InvalidRequest, "the provider refuses the request: a wrong name, setting or image"},
	{model.ContentFilter, "the provider's filter stopped prompt or answer"},
	{model.Exhausted, "a scripted model has no response left"},
}

// The docs describe the behavior of retries, loop and breaker for each class as it is.
func TestClassesDoc(t *testing.T) {
	t.Parallel()
	known := map[model.Class]bool{model.Cancelled: true} // not a failure: an abort
	var table strings.Builder
	table.WriteString("| class | what happened | in the turn | in later turns | a fallback model | otherwise ends | breaker |\n|---|---|---|---|---|---|---|\n")
	for _, m := range meanings {
		known[m.class] = true
		later, end := later(t, m.class)
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s | %s |\n", m.class, m.means, soon(t, m.class), later, fallback(t, m.class), end, counts(m.class))
	}
	for _, m := range []struct {
		stop        model.Stop
		name, means string
	}{
		{model.StopMaxOutputTokens, "output limit", "the answer was cut off by `max_output_tokens`, or by the window"},
		{model.StopRefusal, "refusal", "the model refuses to answer"},
	} {
		later, end := stops(t, m.stop)
		fmt.Fprintf(&table, "| %s | %s |  | %s |  | %s |  |\n", m.name, m.means, later, end)
	}
	fmt.Fprintf(&table, "| `%s` | the run was aborted |  |  |  | as the abort says |  |\n", model.Cancelled)
	source, err := os.ReadFile("../model/model.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range regexp.MustCompile(`\sClass += "(\w+)"`).FindAllSubmatch(source, -1) {
		if !known[model.Class(c[1])] {
			t.Errorf("class %s has no row in docs/reference/models.md: give it a meaning here", c[1])
		}
	}
	wantSection(t, "classes", table.String())
}

// soon describes what Retry does with a failure of a class.
func soon(t *testing.T, c model.Class) string {
	t.Helper()
	calls := 0
	err := model.Retry(t.Context(), model.RetryPolicy{First: time.Nanosecond}, func(context.Context) error {
		calls++
		return &model.Error{Class: c}
	})
	if err == nil {
		t.Fatal("Retry turned a failure into a success")
	}
	if calls == 1 {
		return ""
	}
	return fmt.Sprintf("%d retries", calls-1)
}

// later describes what a loop does with a model that keeps failing.
func later(t *testing.T, c model.Class) (tries, end string) {
	t.Helper()
	r := start(t, agent.Definition{}, state.Limits{})
	n := 0
	for !r.s.Status.Terminal() {
		r.begin(loop.TurnBegan{})
		r.fail(c)
		switch r.s.Transition.Reason {
		case state.ReactiveCompactRetry:
			tries = "one, with a compacted history"
		case state.WaitingSchedule:
			n++
			tries = fmt.Sprintf("%d tries, later and later", n)
			r.s.Status, r.s.Waiting = state.Queued, nil // as when the delay has passed
		default:
		}
	}
	return tries, "`" + string(r.s.Transition.Reason) + "`"
}

// stops describes what a loop does with a model that always stops for a reason that is not an error.
func stops(t *testing.T, stop model.Stop) (continued, end string) {
	t.Helper()
	r := start(t, agent.Definition{}, state.Limits{})
	for n := 0; !r.s.Status.Terminal(); {
		r.begin(loop.TurnBegan{})
		resp := text("x")
		resp.Stop = stop
		r.respond(resp)
		if r.s.Transition.Reason == state.MaxOutputTokensRecovery {
			n++
			continued = fmt.Sprintf("continued %d times", n)
		}
	}
	return continued, "`" + string(r.s.Transition.Reason) + "`"
}

func fallback(t *testing.T, c model.Class) string {
	t.Helper()
	r := start(t, agent.Definition{Model: agent.Model{Provider: "scripted", Fallback: []agent.Model{{Provider: "scripted"}}}}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.fail(c)
	if r.s.Transition.Reason == state.ModelFallback {
		return "takes over"
	}
	return ""
}

// counts describes whether failures of a class open a circuit breaker.
func counts(c model.Class) string {
	b := model.NewBreakers(model.BreakerPolicy{Failures: 1})
	b.Done("m", &model.Error{Class: c})
	if b.Allow("m") != nil {
		return "counts"
	}
	return ""
}

// wantSection compares a marked section of docs/reference/models.md; with -update it is rewritten.
func wantSection(t *testing.T, name, want string) {
	t.Helper()
	const path = "../../docs/reference/models.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := []byte("<!-- "+name+": make generate -->\n"), []byte("<!-- end -->")
	i := bytes.Index(doc, begin)
	if i < 0 {
		t.Fatalf("docs/reference/models.md has no section %s", name)
	}
	i += len(begin)
	n := bytes.Index(doc[i:], end)
	if string(doc[i:i+n]) == want {
		return
	}
	if !*update {
		t.Fatalf("docs/reference/models.md is stale: run `make generate`. Want\n%s", want)
	}
	if err := os.WriteFile(path, []byte(string(doc[:i])+want+string(doc[i+n:])), 0o644); err != nil {
		t.Fatal(err)
	}
}
