package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Exit codes of `run` and `watch`, by how the run stands in the end.
const (
	exitIncomplete = 3
	exitFailed     = 4
	exitCancelled  = 5
	exitWaiting    = 6
)

// print writes v as JSON, or text for people.
func (e *env) print(v any, text string) error {
	if !e.json {
		_, err := fmt.Fprintln(e.out, text)
		return err
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, string(b))
	return err
}

// submission is what `run` and `submit` share.
type submission struct {
	Agent    string            `arg:"" help:"Name of an agent, or a file that defines one."`
	Input    string            `arg:"" optional:"" help:"What to do; - reads it from standard input."`
	From     string            `type:"existingfile" help:"File with the input as JSON: messages, or a transcript as show --format prints it."`
	MaxTurns int               `help:"Most model calls."`
	Deadline string            `help:"Time to finish, as in 10m; a number is seconds."`
	Priority string            `enum:"high,normal,low" default:"normal" help:"Lane: ${enum}."`
	Metadata map[string]string `short:"m" help:"Metadata, as in -m key=value."`
	Key      string            `help:"Idempotency key."`
	Stream   string            `hidden:""`
}

func (s submission) submit(e *env) (api.Run, error) {
	name, err := agentName(e, s.Agent)
	if err != nil {
		return api.Run{}, err
	}
	input, err := s.input(e.in)
	if err != nil {
		return api.Run{}, err
	}
	req := api.SubmitRequest{Agent: name, Input: input, Priority: s.Priority, Metadata: s.Metadata, Stream: s.Stream}
	if s.MaxTurns != 0 || s.Deadline != "" {
		req.Limits = &api.SubmitLimits{MaxTurns: s.MaxTurns}
		if s.Deadline != "" {
			d, err := deadline(s.Deadline)
			if err != nil {
				return api.Run{}, err
			}
			req.Limits.Deadline = &d
		}
	}
	return e.client.Submit(e.ctx, req, s.Key)
}

// agentName returns the name of an agent that is given by name, or by a file that
// defines it. No agent has a / in its name.
func agentName(e *env, name string) (string, error) {
	if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" && ext != ".json" && !strings.ContainsRune(name, '/') {
		return name, nil
	}
	put, err := putFile(e, name)
	return put.Name, err
}

// input is what was said, or what a file holds.
func (s submission) input(in io.Reader) (json.RawMessage, error) {
	if (s.Input == "") == (s.From == "") {
		return nil, errors.New("give either an input or --from FILE")
	}
	if s.Input == "-" {
		b, err := io.ReadAll(in)
		if err == nil && len(strings.TrimSpace(string(b))) == 0 {
			err = errors.New("standard input is empty: the input - is read from there")
		}
		return client.Text(string(b)), err
	}
	if s.From == "" {
		return client.Text(s.Input), nil
	}
	b, err := os.ReadFile(s.From)
	if err == nil && !json.Valid(b) {
		err = fmt.Errorf("%s is not JSON: --from wants messages such as [{\"role\": \"user\", \"content\": \"…\"}]; a plain text is read by `turnpike run %s - < %s`", s.From, s.Agent, s.From)
	}
	return b, err
}

// deadline reads what the API takes: a duration, a time, or a number of seconds.
func deadline(text string) (d api.Deadline, err error) {
	raw := client.Text(text)
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		raw = json.RawMessage(text)
	}
	if d.UnmarshalJSON(raw) != nil {
		return d, fmt.Errorf("--deadline %q: write it like 10m, as seconds, or as a time like 2026-11-20T15:04:05Z", text)
	}
	return d, nil
}

// noName reports a definition that does not say how the agent is called.
func noName(path string) error { return fmt.Errorf("%s: name: is missing", path) }

func putFile(e *env, path string) (api.Agent, error) {
	def, err := agent.Load(path)
	if err != nil {
		return api.Agent{}, err
	}
	if def.Name == "" {
		return api.Agent{}, noName(path)
	}
	b, err := json.Marshal(def)
	if err != nil {
		return api.Agent{}, err
	}
	return e.client.PutAgent(e.ctx, def.Name, b)
}

type runCmd struct{ submission }

func (c *runCmd) Run(e *env) error {
	if e.terminal && !e.json {
		c.Stream = "deltas"
	}
	run, err := c.submit(e)
	if err != nil {
		return err
	}
	return follow(e, run.ID, 0, true)
}

type submitCmd struct{ submission }

func (c *submitCmd) Run(e *env) error {
	run, err := c.submit(e)
	if err != nil {
		return err
	}
	return e.print(run, run.ID)
}

type forkCmd struct {
	ID    string `arg:"" help:"Run id."`
	Turn  int    `arg:"" help:"Last turn of the history that is shared; 0 is the submission alone."`
	Input string `arg:"" optional:"" help:"What to say then."`
}

func (c *forkCmd) Run(e *env) error {
	req := api.ForkRequest{Turn: &c.Turn}
	if c.Input != "" {
		req.Input = client.Text(c.Input)
	}
	run, err := e.client.Fork(e.ctx, c.ID, req)
	if err != nil {
		return err
	}
	return e.print(run, run.ID)
}

type watchCmd struct {
	ID    string `arg:"" help:"Run id."`
	After int64  `help:"Number of the last event known."`
}

func (c *watchCmd) Run(e *env) error { return follow(e, c.ID, c.After, false) }

// follow shows a run's events until it has ended, or, for `run`, waits for
// somebody.
func follow(e *env, id string, after int64, stopAtWait bool) error {
	if !e.json {
		fmt.Fprintf(e.out, "run %s\n", id)
	}
	w := &watch.Printer{Out: e.out, Terminal: e.terminal}
	notice := func(lost error) {
		if lost != nil {
			fmt.Fprintf(e.errs, "connection lost, trying again: %s\n", explain(lost, e.server))
		} else {
			fmt.Fprintln(e.errs, "connected again")
		}
	}
	for ev, err := range e.client.Follow(e.ctx, id, after, notice) {
		if err != nil {
			if e.ctx.Err() != nil {
				return exitError(130)
			}
			return err
		}
		if e.json {
			fmt.Fprintf(e.out, "%s\n", ev.Data)
		} else {
			w.Show(ev)
		}
		if ev.Type != state.EntryWaiting || ev.Reason == state.WaitingSchedule || ev.Reason == state.WaitingChild {
			continue
		}
		if !e.json {
			if err := showHint(e, id, !stopAtWait); err != nil {
				return err
			}
		}
		if stopAtWait {
			return exitError(exitWaiting)
		}
	}
	run, err := e.client.Get(e.ctx, id)
	if err != nil {
		return err
	}
	if text := unpriced(run); text != "" {
		fmt.Fprintln(e.errs, text)
	}
	return exitOf(run)
}

// unpriced says so where a run has a limit of money that bounds nothing, since its models
// have no price.
func unpriced(run api.Run) string {
	if run.Budget.CostUSD == nil || run.Usage.CostUSD != nil || run.Usage.ModelCalls == 0 {
		return ""
	}
	return "warning: limits.cost_usd bounds nothing here: the model has no price; TURNPIKE_PRICES of the worker names a file with prices"
}

func exitOf(run api.Run) error {
	switch state.Status(run.Status) {
	case state.Completed:
		return nil
	case state.Incomplete:
		return exitError(exitIncomplete)
	case state.Failed:
		return exitError(exitFailed)
	case state.Cancelled:
		return exitError(exitCancelled)
	default:
		return exitError(exitWaiting)
	}
}

type psCmd struct {
	Status string `help:"Only these statuses, by commas."`
	Agent  string `help:"Only this agent."`
	Parent string `help:"Only the runs that this one started."`
	Limit  int    `default:"50" help:"Most rows."`
	Quiet  bool   `short:"q" help:"Print the ids alone, the newest first."`
}

func (c *psCmd) Run(e *env) error {
	q := url.Values{"limit": {fmt.Sprint(c.Limit)}}
	if c.Status != "" {
		q.Set("status", c.Status)
	}
	if c.Agent != "" {
		q.Set("agent", c.Agent)
	}
	if c.Parent != "" {
		q.Set("parent", c.Parent)
	}
	page, err := e.client.List(e.ctx, q)
	if err != nil {
		return err
	}
	if c.Quiet && !e.json {
		for _, r := range page.Items {
			fmt.Fprintln(e.out, r.ID)
		}
		return nil
	}
	return e.print(page, table("RUN\tAGENT\tSTATUS\tREASON\tTURNS\tAGE", page.Items, func(r api.Run) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s", r.ID, r.Agent, r.Status, orDash(r.Reason), r.TurnCount, time.Since(r.CreatedAt.Time).Round(time.Second))
	}))
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func table[T any](head string, rows []T, row func(T) string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, r := range rows {
		fmt.Fprintln(w, row(r))
	}
	_ = w.Flush() // a strings.Builder takes everything
	return strings.TrimRight(b.String(), "\n")
}

type cancelCmd struct {
	ID     string `arg:"" help:"Run id."`
	Reason string `help:"Why."`
}

func (c *cancelCmd) Run(e *env) error {
	run, err := e.client.Cancel(e.ctx, c.ID, c.Reason)
	if err != nil {
		return err
	}
	return e.print(run, "abort accepted")
}

type agentsCmd struct {
	Ls  agentsLsCmd  `cmd:"" default:"1" help:"List agents."`
	Get agentsGetCmd `cmd:"" help:"Show an agent."`
	Put agentsPutCmd `cmd:"" help:"Define an agent from a YAML or JSON file."`
	Rm  agentsRmCmd  `cmd:"" help:"Remove an agent."`
}

type agentsLsCmd struct{}

func (*agentsLsCmd) Run(e *env) error {
	list, err := e.client.Agents(e.ctx)
	if err != nil {
		return err
	}
	return e.print(api.NewPage(list, ""), table("AGENT\tVERSION\tCREATED", list, func(a api.Agent) string {
		return fmt.Sprintf("%s\t%d\t%s", a.Name, a.Version, a.CreatedAt.Local().Format(time.DateTime))
	}))
}

type agentsGetCmd struct {
	Name string `arg:""`
}

func (c *agentsGetCmd) Run(e *env) error {
	a, err := e.client.Agent(e.ctx, c.Name)
	if err != nil {
		return err
	}
	return e.print(a, string(a.Definition))
}

type agentsPutCmd struct {
	File []string `arg:"" type:"existingfile"`
}

func (c *agentsPutCmd) Run(e *env) error {
	var errs []error
	for _, f := range c.File {
		a, err := putFile(e, f)
		if err == nil {
			err = e.print(a, fmt.Sprintf("%s version %d", a.Name, a.Version))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

type agentsRmCmd struct {
	Name string `arg:""`
}

func (c *agentsRmCmd) Run(e *env) error { return e.client.DeleteAgent(e.ctx, c.Name) }

// agentFiles returns the definitions in a directory.
func agentFiles(dir string) ([]string, error) {
	var files []string
	for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is no directory", dir)
	}
	return files, nil
}
