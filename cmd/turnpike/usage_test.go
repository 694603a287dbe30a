package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/measure"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// TestMain runs the command itself if a test starts this binary as the command.
func TestMain(m *testing.M) {
	if os.Getenv("TURNPIKE_TEST_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A usage error has the exit code 80, wherever it is detected: the command prints the error and where to read
// on, and sends no request.
func TestWrongUsageHasItsCode(t *testing.T) {
	t.Parallel()
	const id = "run_01M848HY4KCXMSBXXTGTJACQES"
	for _, test := range []struct {
		args    string // with _ for a space within an argument
		command string // the command whose help is named
		says    string
	}{
		{"ps --limit 0", "ps", "--limit is 0"},
		{"ps --since soon", "ps", "--since"},
		{"stats --since soon", "stats", "--since"},
		{"stats --since 0s", "stats", "--since"},
		{"ps -o yaml", "ps", "--output must be one of"},
		{"watch " + id + " --stream all", "watch", `--stream must be one of "turns","deltas" but`},
		{"--server foo ps", "ps", `"foo" is not a URL`},
		{"--server ftp://x ps", "ps", "ftp:// is not supported"},
		{"--ca-file nofile ps", "ps", "nofile"},
		{"run hello", "run", "the input is missing: give INPUT or --from FILE"},
		{"run nofile.yaml hi", "run", "nofile.yaml"},
		{"run hello hi --from nofile", "run", "nofile"},
		{"run hello hi --file nofile", "run", "nofile"},
		{"files put nofile", "files put", "nofile"},
		{"schedules put x nofile", "schedules put", "nofile"},
		{"triggers put x nofile", "triggers put", "nofile"},
		{"hooks put x nofile", "hooks put", "nofile"},
		{"memory put a.md nofile --scope tenant", "memory put", "nofile"},
		{"eval nofile", "eval run", "nofile"},
		{"redis permissions --role worker --password-file nofile", "redis permissions", "nofile"},
		{"run hello hi --start-at soon", "run", "--start-at"},
		{"run hello hi --deadline soon", "run", "--deadline"},
		{"run hello hi --max-turns=-1", "run", "--max-turns"},
		{"submit hello hi --cost-usd 0.0000001", "submit", "--cost-usd"},
		{"batch hello nofile", "batch submit", "nofile"},
		{"batch ls --limit 0", "batch ls", "--limit is 0"},
		{"fork " + id, "fork", "--turn is required"},
		{"fork " + id + " 1 --turn 1", "fork", "TURN and --turn are both given"},
		{"fork " + id + " 1 hi --message hi", "fork", "INPUT and --message are both given"},
		{"fork " + id + " 1 --result call", "fork", "--result call"},
		{"fork " + id + " 1 --edit msg", "fork", "--edit msg"},
		{"fork " + id + " 1 --instructions nofile", "fork", "nofile"},
		{"gc", "gc", "--older-than=DURATION"},
		{"gc --older-than soon", "gc", "--older-than"},
		{"approve " + id + " --arguments {", "approve", "--arguments"},
		{"agents put nofile", "agents put", "nofile"},
		{"agents put in.txt .", "agents put", ". is a directory"},
		{"agents publish hello", "agents publish", "--hash is missing"},
		{"agents versions hello --limit 0", "agents versions", "--limit is 0"},
		{"audit --limit 0", "audit", "--limit is 0"},
		{"keys create", "keys create", "--role is missing"},
		{"keys create --role viewer --expires=-1h", "keys create", "not longer than 0"},
		{"tokens create ada --role viewer --expires soon", "tokens create", "30d, 72h or 90m"},
		{"dead replay", "dead replay", "give their numbers, or --all"},
		{"dead replay 7 --all", "dead replay", "numbers of letters and --all are both given"},
		{"memory rm --scope tenant", "memory rm", "no file is selected"},
		{"memory rm a.md --all --scope tenant", "memory rm", "the path a.md and --all are both given"},
		{"tools call x --arguments [1]", "tools call", "not a JSON object"},
		{"tools call x --arguments @nofile", "tools call", "nofile"},
		{"mcp ls nofile.yaml", "mcp ls", "nofile.yaml"},
		{"mcp ls in.yaml --allow x", "mcp ls", "--allow"},
		{"secrets made --user x", "secrets", "--user"},
		{"secrets made --owner x", "secrets", "--owner"},
		{"mock-model --addr x", "mock-model", "--addr"},
		{"mock-model --script nofile", "mock-model", "nofile"},
		{"bench --only nothing", "bench", "--only"},
		{"dev --nats-listen x", "dev", "--nats-listen"},
		{"dev --addr x", "dev", "--addr"},
		{"dev --addr 127.0.0.1:0 --agents nodir", "dev", "--agents"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "in.txt"), []byte("Tea.\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			out, code := command(t, dir, strings.Fields(test.args)...)
			if code != 80 {
				t.Errorf("exit code %d, want 80", code)
			}
			if !strings.Contains(out, test.says) || !strings.HasSuffix(out, "\nrun turnpike "+test.command+" --help for the usage\n") {
				t.Errorf("printed %q, want %q and the help of %s", out, test.says, test.command)
			}
		})
	}
}

// A document in JSON can be saved and read again as it was, although nothing in it may command a terminal.
func TestDocumentsStayTheSame(t *testing.T) {
	t.Parallel()
	c := worked(t)
	const text = "soft\u00adhyphen, \u200bspace, \u202ebidi, \u009b2J"
	run := submit(t, c, fmt.Sprintf(`{"instructions":%[1]q,"model":{"provider":"scripted","responses":[{"text":%[1]q}]}}`, text))
	for _, args := range [][]string{{"agents", "get", "a"}, {"show", "--raw", run.ID}, {"show", "--format", "openai", run.ID}} {
		out, err := says(t, c, args...)
		if err != nil || strings.ContainsAny(out, "\u00ad\u200b\u202e\u009b\uFFFD") {
			t.Errorf("%s: %v, %q", args, err, out)
		}
		found := false
		for line := range strings.Lines(out) {
			var v any
			found = found || json.Unmarshal([]byte(line), &v) == nil && strings.Contains(fmt.Sprint(v), text)
		}
		var v any
		if found = found || json.Unmarshal([]byte(out), &v) == nil && strings.Contains(fmt.Sprint(v), text); !found {
			t.Errorf("%s lacks the text: %s", args, out)
		}
	}
}

// The version names the build, for reports of bugs.
func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--version", "version"} {
		if out, code := command(t, t.TempDir(), args); code != 0 || !strings.HasPrefix(out, "turnpike ") || !strings.Contains(out, runtime.Version()) {
			t.Errorf("%s: exit code %d, printed %q", args, code, out)
		}
	}
}

// Errors that are detected later have the code 1.
func TestOtherErrorsHaveTheirCode(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--server", "http://127.0.0.1:1", "ps"}, {"login"}} {
		if out, code := command(t, t.TempDir(), args...); code != 1 || strings.Contains(out, "--help") || strings.Contains(out, "EOF") {
			t.Errorf("%s: exit code %d, printed %q", args, code, out)
		}
	}
}

// command runs the command as a process, with empty standard input, and returns its output and exit code.
func command(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, append(os.Environ(), "TURNPIKE_TEST_COMMAND=1", "TURNPIKE_URL=", "HOME="+dir), &out, &out
	err := c.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return out.String(), c.ProcessState.ExitCode()
}

// A draft's name is generated: people are shown the agent that it is a draft of.
func TestDraftsAreSaidOfTheirAgent(t *testing.T) {
	t.Parallel()
	c := worked(t)
	run := submit(t, c, `{model: {provider: scripted, responses: [{text: Lisbon.}]}, instructions: Be brief.}`)
	instructions, zero := "Be long.", 0
	fork, err := c.Fork(t.Context(), run.ID, api.ForkRequest{Turn: &zero, Instructions: &instructions})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ps", "--limit", "1"}, {"show", fork.ID}} {
		out, err := says(t, c, args...)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "draft of a") || strings.Contains(out, fork.Agent) {
			t.Errorf("%s of a run of the draft %s prints\n%s", args[0], fork.Agent, out)
		}
	}
}

// Watching a run that does not exist prints an error, and nothing about another run.
func TestWatchOfNoRun(t *testing.T) {
	t.Parallel()
	if out, err := says(t, worked(t), "watch", "run_01M848HY4KCXMSBXXTGTJACQES"); err == nil || out != "" {
		t.Errorf("err %v, printed %q", err, out)
	}
}

// Each command that takes an agent suggests the name that was probably meant.
func TestMisspeltAgents(t *testing.T) {
	t.Parallel()
	c := worked(t)
	if _, err := c.PutAgent(t.Context(), "hello", []byte(`{model: {provider: scripted, responses: [{text: x}]}}`)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "helo", "hi"}, {"agents", "get", "helo"}, {"agents", "versions", "helo"}, {"agents", "rm", "helo"}} {
		_, err := says(t, c, args...)
		if err == nil || !strings.Contains(explain(err, ""), "did you mean \"hello\"? List all agents with `turnpike agents`") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// The command line replaces remedies that name HTTP requests with its own commands and flags.
func TestExplainNamesCommands(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		"authentication required: send an API key or a token in one header Authorization: Bearer, or log in at /ui/": "unauthenticated: authentication required: log in with `turnpike login`, or give an API key or a token in TURNPIKE_TOKEN or --token",
		"the API key is unknown or was revoked: send another one":                                                    "unauthenticated: the API key is unknown or was revoked: send another one: log in with `turnpike login`, or give an API key or a token in TURNPIKE_TOKEN or --token",
	} {
		if got := explain(&api.Problem{Code: api.CodeUnauthenticated, Detail: detail}, ""); got != want {
			t.Errorf("explain(%q) = %q, want %q", detail, got, want)
		}
	}
	const tenant = `you have no role in tenant "b", only in a, c: name one of these`
	if got := explain(&api.Problem{Code: api.CodeForbidden, Detail: tenant + " in the header Turnpike-Tenant"}, ""); got != "forbidden: "+tenant+" with --tenant" {
		t.Errorf("explain(another tenant) = %q", got)
	}
	for detail, want := range map[string]string{
		`there is no schedule "x": list them with GET /v1/schedules`:                             "there is no schedule \"x\": list them with `turnpike schedules ls`",
		`delete all runs of the batch first, which GET /v1/runs?batch=batch_1 lists`:             "delete all runs of the batch first, which `turnpike ps --batch batch_1` lists",
		`there is no evaluation "x": list them with GET /v1/evaluations`:                         "there is no evaluation \"x\": list them with `turnpike eval ls`",
		`messages[0].id is missing: give the id of a message from GET /v1/runs/r/messages`:       "messages[0].id is missing: give the id of a message from `turnpike watch r -o json`",
		`agent_version: agent my-a has no version 9: name one from GET /v1/agents/my-a/versions`: "agent_version: agent my-a has no version 9: name one from `turnpike agents versions my-a`",
		`there is no path /v2: use PUT /v1/other`:                                                "there is no path /v2",
	} {
		if got := explain(&api.Problem{Code: api.CodeInvalidRequest, Detail: detail}, ""); got != "invalid_request: "+want {
			t.Errorf("explain(%q) = %q, want %q", detail, got, want)
		}
	}
}

// An error names the file as it was given on the command line.
func TestPutNamesTheFileAsGiven(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := worked(t)
	for text, want := range map[string]string{
		"name: a\nmodl: x\n":                                                                      "a.yaml:2:1: modl: ",
		"name: a\nmodel: {provider: scripted}\nname: b\n":                                         `a.yaml:3: key "name" already set`,
		"name: a\nmodel: [\n":                                                                     "a.yaml:2: did not find",
		"name: a\nmodel: {provider: scripted, responses_file: none.json}\n":                       "a.yaml: model.responses_file none.json: open none.json: no such file",
		"name: a\nmodel: {provider: scripted, responses_file: a.yaml}\n":                          "a.yaml: model.responses_file a.yaml: ",
		"name: a\nmodel: {provider: scripted, responses_file: a.yaml, responses: [{text: hi}]}\n": "a.yaml: model has both",
		"name: a\nmodl: x\nmodel: {provider: scripted, responses_file: none.json}\n":              "a.yaml:2:1: modl: ",
	} {
		if err := os.WriteFile("a.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := says(t, c, "agents", "put", "a.yaml"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("put of %q prints %v, want %s", text, err, want)
		}
	}
}

// A definition may come from standard input.
func TestPutOfStandardInput(t *testing.T) {
	t.Chdir(t.TempDir())
	c := worked(t)
	for text, want := range map[string]string{
		"name: a\nmodel: {provider: scripted, responses: [{text: hi}]}\n": "a version 1",
		"name: a\nmodl: x\n": "-:2:1: modl: ",
		"name: a\nmodel: {provider: scripted, responses_file: x.json}\n":                                                "-: model.responses_file is a path",
		"name: b\nmodel: {provider: scripted, responses: [{text: hi}]}\ntools: [{name: t, kind: agent, agent: none}]\n": "-:3",
	} {
		var out strings.Builder
		err := execute(t, c, strings.NewReader(text), &out, "agents", "put", "-")
		if said := fmt.Sprint(out.String(), err); !strings.Contains(said, want) {
			t.Errorf("put of %q says %s, want %s", text, said, want)
		}
	}
}

// The benchmark program runs itself as every process that it measures.
func TestBench(t *testing.T) {
	t.Parallel()
	out, code := command(t, t.TempDir(), "bench", "--only", "start", "--short", "-o", "json")
	if code != 0 {
		t.Fatalf("exit code %d, printed %s", code, out)
	}
	var report measure.Report
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &report); err != nil {
		t.Fatalf("%v: printed %s", err, out)
	}
	if len(report.Results) != 1 || len(report.Results[0].Figures) != 6 || report.Failed() {
		t.Errorf("measured %+v", report.Results)
	}
	for _, f := range report.Results[0].Figures {
		if f.Value <= 0 || f.Unit == "MiB" && f.Value < 10 { // a process that has not started uses less
			t.Errorf("%s is %v %s", f.Name, f.Value, f.Unit)
		}
	}
}
