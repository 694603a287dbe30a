package docs_test

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// outcome is the expected end of an example's newest run.
type outcome struct {
	end    string   // status and reason
	why    string   // the reasons of its transitions, in order, unless they depend on time
	events []string // required types of events
	says   string   // required text in the transcript or the output of the commands
}

// Every file of examples/agents has a row.
var outcomes = map[string]outcome{
	"approval":    {end: "completed completed", why: "submitted waiting_approval approved next_turn completed", says: "Paid 240 euros back for order A-17."},
	"async-tool":  {end: "completed completed", why: "submitted waiting_tool tool_results completed", says: "lighthouse.png, 640 x 480"},
	"batch":       {end: "completed completed", why: "submitted waiting_schedule completed", says: "Noted."},
	"capitals":    {end: "completed completed", why: "submitted completed", says: "Paris"},
	"client-tool": {end: "completed completed", why: "submitted waiting_client_tool tool_results completed", says: "notes.txt"},
	"compaction": {
		end: "completed completed", why: "submitted next_turn next_turn next_turn completed", events: []string{"message.compacted"},
		says: "Summary: 1 km and 2 km were converted.",
	},
	"continued":         {end: "completed completed", why: "submitted completed user_message completed", says: "Madrid."},
	"converse":          {end: "waiting waiting_human_input", why: "submitted waiting_human_input user_message waiting_human_input", says: "I can talk."},
	"delegation":        {end: "completed completed", says: "It has caffeine."},
	"denial":            {end: "completed completed", why: "submitted waiting_approval denied completed", says: "Keep the last three."},
	"failure-hooks":     {end: "failed model_error", why: "submitted model_error", says: "invalid_request"},
	"fallback":          {end: "completed completed", why: "submitted model_fallback completed", events: []string{"message.tombstoned"}, says: "Hello."},
	"fork":              {end: "completed completed", why: "forked completed", says: "Are you sure?"},
	"hello":             {end: "completed completed", why: "submitted completed", says: "Hello."},
	"hooks-cel":         {end: "completed completed", why: "submitted next_turn stop_hook_blocking completed", says: "This path is protected."},
	"handoff":           {end: "completed completed", why: "submitted handed_off completed", events: []string{"agent.handoff"}, says: "I have corrected the invoice."},
	"invoices":          {end: "completed completed", why: "submitted completed", says: "Which invoice is it?"},
	"input-hooks":       {end: "incomplete refused", why: "submitted refused", events: []string{"message.checked"}, says: "Please do not send card numbers."},
	"hooks-nats":        {end: "completed completed", why: "submitted next_turn stop_hook_blocking completed", says: "Mallory is on the list"},
	"http-tool":         {end: "completed completed", why: "submitted next_turn completed", says: "Reads the definition of an agent."},
	"interrupt":         {end: "completed completed", why: "submitted waiting_approval interrupted completed", says: "A voucher is on its way."},
	"last-answer":       {end: "incomplete max_turns", why: "submitted next_turn max_turns", says: "I did not get to the way back."},
	"limits":            {end: "incomplete token_budget_exhausted", why: "submitted next_turn token_budget_exhausted", events: []string{"budget.warning", "budget.exceeded"}},
	"long-answer":       {end: "completed completed", why: "submitted max_output_tokens_recovery completed", says: "four, five, six."},
	"max-calls":         {end: "completed completed", why: "submitted next_turn next_turn completed", says: "maximum of 1 calls"},
	"max-turns":         {end: "incomplete max_turns", why: "submitted next_turn max_turns"},
	"mcp-tool":          {end: "completed completed", why: "submitted next_turn completed", says: "2001-09-09"},
	"provider-tools":    {end: "completed completed", why: "submitted completed", says: "Around 1200 BC"},
	"memory":            {end: "completed completed", why: "submitted next_turn next_turn completed", says: "Vegetarian."},
	"model-settings":    {end: "completed completed", why: "submitted next_turn completed", says: `"temperature":0.2,"tool_choice":"auto"`},
	"nats-tool":         {end: "completed completed", why: "submitted next_turn completed", says: "62.13711922"},
	"question":          {end: "completed completed", why: "submitted waiting_human_input answered completed", says: "for four"},
	"reflect":           {end: "completed confident", why: "submitted next_turn reflected reflected reflected reflected reflected confident", events: []string{"reflect"}},
	"refusal":           {end: "incomplete refused", why: "submitted refused", says: "I will not do that."},
	"remote-agent":      {end: "completed completed", why: "submitted next_turn completed", says: "pão"},
	"researcher":        {end: "completed completed", why: "submitted completed", says: "It has caffeine."},
	"results":           {end: "completed completed", why: "submitted next_turn next_turn next_turn completed", events: []string{"message.compacted"}, says: "Bytes 0 to 16384 of"},
	"retries":           {end: "completed completed", why: "submitted waiting_schedule model_retry completed", says: "Hello."},
	"reuse":             {end: "completed completed", why: "submitted next_turn next_turn completed", events: []string{"tool.reused"}, says: "0.62 miles"},
	"schedule":          {end: "cancelled aborted_waiting", why: "submitted waiting_schedule aborted_waiting", says: "waiting_schedule"},
	"single-call":       {end: "completed completed", why: "submitted completed", says: "mixed"},
	"streaming":         {end: "completed completed", why: "submitted completed", says: "event: model.delta"},
	"structured-output": {end: "completed completed", why: "submitted next_turn output_retry completed", says: `{"miles": 62.1}`},
	"token-budget":      {end: "completed completed", why: "submitted budget_continuation completed", says: "Grace."},
	"tool-loop":         {end: "incomplete tool_loop", why: "submitted next_turn next_turn tool_loop"},
	"transcript":        {end: "completed completed", why: "submitted completed", says: "Lisbon."},
	"variables":         {end: "completed completed", why: "submitted completed", says: "You help Ada Lovelace in at most 3 sentences. Write {{name}} as it is."},
	"two-phase":         {end: "completed completed", why: "submitted next_turn final_response completed", events: []string{"progress"}, says: "62.13711922"},
}

// Each example runs as the comment at its head says, all on one deployment, and ends as expected.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "examples/agents/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(f), ".yaml")
		commands[name] = head(string(text))
		if commands[name] == "" {
			t.Errorf("%s does not begin with a comment that has a command, indented by three spaces", f)
		}
		if !strings.Contains(string(text), "\nname: "+name+"\n") {
			t.Errorf("the agent of %s has another name", f)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(outcomes)), slices.Sorted(maps.Keys(commands))); diff != "" {
		t.Fatalf("the table of outcomes and examples/agents differ:\n%s", diff)
	}
	readme, err := os.ReadFile(filepath.Join(root, "examples/agents/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, strings.Join(slices.Collect(maps.Values(commands)), "\n"))
	s.deploy(t)
	// A service that several examples start is started once.
	services := map[string]bool{}
	for name, text := range commands {
		for _, line := range background.FindAllString(text, -1) {
			services[line] = true
		}
		commands[name] = background.ReplaceAllString(text, "")
	}
	s.run(t, []block{{at: "services", text: strings.Join(slices.Collect(maps.Keys(services)), "\n")}})
	for name, want := range outcomes {
		if !strings.Contains(string(readme), "("+name+".yaml)") {
			t.Errorf("examples/agents/README.md does not name %s.yaml", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			printed := s.run(t, []block{{at: name + ".yaml", text: commands[name]}})
			s.check(t, name, want, printed)
		})
	}
}

// The index of the examples names each directory.
func TestExamplesAreListed(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile(filepath.Join(root, "examples/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := os.ReadDir(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d.IsDir() && !strings.Contains(string(index), "| [`"+d.Name()+"`]("+d.Name()) {
			t.Errorf("examples/README.md has no row for %s", d.Name())
		}
	}
}

// head returns the commands in the comment at the head of a file.
func head(text string) string {
	var commands strings.Builder
	for line := range strings.Lines(text) {
		comment, is := strings.CutPrefix(line, "#")
		if !is {
			break
		}
		if command, is := strings.CutPrefix(comment, "   "); is {
			commands.WriteString(command)
		}
	}
	return commands.String()
}

// check waits for the newest run of an agent and compares it with the expectation: the last command may have
// sent a signal.
func (s *session) check(t *testing.T, agent string, want outcome, printed string) {
	t.Helper()
	page, err := s.client.List(t.Context(), url.Values{"agent": {agent}, "limit": {"1"}})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("runs of %s: %+v, %v\n%s", agent, page, err, printed)
	}
	id := page.Items[0].ID
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(2 * time.Minute); ; <-tick.C {
		end, said := s.state(t, id)
		if end == want.end && strings.Contains(printed+said, want.says) {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the run is %s, want %s with the text %q; the output and the transcript are:\n%s%s", end, want.end, want.says, printed, said)
		}
	}
	turns, err := s.client.Turns(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var why []string
	for _, turn := range turns {
		why = append(why, string(turn.Reason))
	}
	if diff := cmp.Diff(want.why, strings.Join(why, " ")); want.why != "" && diff != "" {
		t.Errorf("the reasons of its transitions:\n%s", diff)
	}
	if want.events == nil {
		return
	}
	var types []string
	for e, err := range s.client.Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, string(e.Type))
	}
	for _, e := range want.events {
		if !slices.Contains(types, e) {
			t.Errorf("event %s is not among %q", e, types)
		}
	}
}

// state returns the state of a run, and the texts of its transcript.
func (s *session) state(t *testing.T, id string) (end, said string) {
	t.Helper()
	run, err := s.client.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.client.Messages(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		for _, p := range m.Parts {
			said += p.Text + p.Content + "\n"
		}
	}
	if run.Reason == nil {
		return run.Status, said
	}
	return run.Status + " " + *run.Reason, said
}
