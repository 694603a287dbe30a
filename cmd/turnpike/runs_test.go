package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The input - is the text from standard input, not a hyphen.
func TestInput(t *testing.T) {
	t.Parallel()
	got, err := submission{Input: "-"}.input(strings.NewReader("two\nlines"))
	if err != nil || string(got) != `"two\nlines"` {
		t.Errorf("input = %s, %v", got, err)
	}
	for in, s := range map[string]submission{" \n": {Input: "-"}, "": {}, "x": {Input: "a", From: "b"}} {
		if got, err := s.input(strings.NewReader(in)); err == nil {
			t.Errorf("input of %+v is %s", s, got)
		}
	}
}

// A cost limit without effect causes a warning.
func TestUnpriced(t *testing.T) {
	t.Parallel()
	cost := state.MicroUSD(5)
	limited, called := api.Budget{CostUSD: &cost}, state.Usage{ModelCalls: 1}
	priced := called
	priced.CostUSD = &cost
	for _, c := range []struct {
		run    api.Run
		warned bool
	}{{api.Run{Budget: limited, Usage: called}, true}, {api.Run{Budget: limited, Usage: priced}, false}, {api.Run{Usage: called}, false}, {api.Run{Budget: limited}, false}} {
		if got := unpriced(c.run); (got != "") != c.warned {
			t.Errorf("%+v, %+v: %q", c.run.Budget, c.run.Usage, got)
		}
	}
}

// --deadline accepts the same values as the API.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"10": 10 * time.Second, "1.5": 1500 * time.Millisecond, "10m": 10 * time.Minute} {
		if d, err := deadline(text); err != nil || d.In != want {
			t.Errorf("deadline(%q) = %v, %v", text, d, err)
		}
	}
	if d, err := deadline("2026-11-20T15:04:05Z"); err != nil || d.At.IsZero() {
		t.Errorf("a time: %v, %v", d, err)
	}
	for _, text := range []string{"soon", "NaN", "10 m"} {
		if d, err := deadline(text); err == nil {
			t.Errorf("deadline(%q) = %v", text, d)
		}
	}
}

// Each kind of wait has a command that ends it.
func TestHint(t *testing.T) {
	t.Parallel()
	child := "run_child"
	for want, w := range map[string]*api.Waiting{
		"turnpike approve run_1 ": {Reason: string(state.WaitingApproval)},
		"turnpike answer run_1 ":  {Reason: string(state.WaitingHumanInput), Calls: []api.WaitCall{{ID: "c1", Needs: "answer"}}},
		"turnpike message run_1 ": {Reason: string(state.WaitingHumanInput)},
		"turnpike result run_1 c2": {Reason: string(state.WaitingClientTool), Calls: []api.WaitCall{
			{ID: "c1", Needs: "approval"}, {ID: "c2", Needs: "result"},
		}},
		"turnpike result run_1 c3": {Reason: string(state.WaitingTool), Calls: []api.WaitCall{{ID: "c3", Needs: "async"}}},
		"/v1/runs/run_1/signals":   {Reason: string(state.WaitingClientTool), Calls: []api.WaitCall{{ID: "c1", Needs: "result", RunID: &child}}},
	} {
		if got := hint("run_1", w); !strings.Contains(got, want) {
			t.Errorf("hint(%+v) = %q, want %q", w, got, want)
		}
	}
}

// The limit flags set the limits of the API.
func TestLimits(t *testing.T) {
	t.Parallel()
	got, err := submission{MaxTurns: 3, Tokens: 1000, CostUSD: 0.25, Wait: time.Hour}.limits()
	want := &api.SubmitLimits{MaxTurns: 3, TotalTokens: 1000, CostUSD: 250_000, Wait: model.Duration(time.Hour)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("limits: %v\n%s", err, diff)
	}
	if got, err := (submission{}).limits(); got != nil || err != nil {
		t.Errorf("no limits are %v, %v", got, err)
	}
	for _, s := range []submission{{Tokens: -1}, {CostUSD: -1}, {CostUSD: 1e-9}, {MaxTurns: -1}, {Wait: -1}} {
		if got, err := s.limits(); err == nil {
			t.Errorf("limits of %+v are %v", s, got)
		}
	}
}

// ps requests the runs that its flags select.
func TestPsQuery(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	c := psCmd{Status: "waiting", Waiting: "waiting_approval", Batch: "b", Metadata: map[string]string{"k": "v w"}, Since: "24h", Text: "a b", Limit: 5}
	got, err := c.query(now)
	const want = "batch=b&created_after=2026-11-19T12%3A00%3A00Z&metadata.k=v+w&status=waiting&text=a+b&waiting_reason=waiting_approval"
	if err != nil || got.Encode() != want {
		t.Errorf("query = %s, %v", got.Encode(), err)
	}
	for _, wrong := range []psCmd{{Since: "yesterday", Limit: 5}, {Limit: 0}, {Limit: -1}} {
		if got, err := wrong.query(now); err == nil {
			t.Errorf("query of %+v = %s", wrong, got.Encode())
		}
	}
}

// --var sets texts, and JSON values with :=.
func TestVariables(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args, want, fails string
	}{
		{args: `--var who=Ada;Bo --var n=7`, want: `{"n":"7","who":"Ada;Bo"}`},
		{args: `--var n:=7 --var list:=[1]`, want: `{"list":[1],"n":7}`},
		{args: `--var n:=seven`, fails: "--var n:=seven is not JSON"},
		{args: ``, want: ``},
	} {
		var c submission
		p, err := kong.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Parse(append([]string{"agent"}, strings.Fields(tt.args)...)); err != nil {
			t.Fatal(err)
		}
		got, err := variables(c.Var)
		if string(got) != tt.want || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s = %s, %v, want %s %s", tt.args, got, err, tt.want, tt.fails)
		}
	}
}

// The raw form of a run is its log: one entry per line.
func TestShowRaw(t *testing.T) {
	t.Parallel()
	c := worked(t)
	run := submit(t, c, `{model: {provider: scripted, responses: [{text: Lisbon.}]}}`)
	out, err := says(t, c, "show", "--raw", run.ID)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for n, line := range strings.Split(strings.TrimSpace(out), "\n") {
		e, err := api.DecodeEvent([]byte(line))
		if err != nil || e.Seq != int64(n+1) || e.RunID != run.ID {
			t.Fatalf("line %d: %v, %s", n+1, err, line)
		}
		types = append(types, string(e.Type))
	}
	if got := strings.Join(types, " "); got != "run.submitted model.message run.finished" {
		t.Errorf("the log has %s", got)
	}
	if out, err := says(t, c, "show", "--raw", "--format", "openai", run.ID); err == nil {
		t.Errorf("two forms at once print %s", out)
	}
}

// A time back from now may be in days.
func TestSinceInDays(t *testing.T) {
	t.Parallel()
	c := worked(t)
	run := submit(t, c, "name: a\nmodel: {provider: scripted, responses: [{text: hi}]}\n")
	if out, err := says(t, c, "ps", "-q", "--since", "7d"); err != nil || !strings.Contains(out, run.ID) {
		t.Errorf("ps prints %q, %v", out, err)
	}
	if out, err := says(t, c, "stats", "--since", "7d"); err != nil || !strings.Contains(out, "completed 1") || strings.Contains(out, "$0.0000") {
		t.Errorf("stats prints %q, %v; an unknown price must not read as free", out, err)
	}
}
