package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
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
	Agent    string            `arg:"" complete:"agent" help:"Name of an agent, or a file that defines one."`
	Input    string            `arg:"" optional:"" help:"What to do; - reads it from standard input."`
	From     string            `type:"existingfile" help:"File with the input as JSON: messages, or a transcript as show --format prints it."`
	StartAt  string            `help:"When to start: a time like 2026-11-20T15:04:05Z, or 10m from now."`
	MaxTurns int               `help:"Most model calls."`
	Tokens   int64             `name:"max-tokens" help:"Most tokens, in and out."`
	CostUSD  float64           `name:"cost-usd" help:"Most that it may cost, in US dollars."`
	Deadline string            `help:"Time to finish, as in 10m; a number is seconds."`
	Wait     time.Duration     `help:"Longest wait for a person or a result, as in 24h."`
	Priority string            `enum:"high,normal,low" default:"normal" help:"Lane: ${enum}."`
	Metadata map[string]string `short:"m" help:"Metadata, as in -m key=value."`
	Key      string            `help:"Idempotency key."`
	Stream   string            `enum:",turns,deltas" default:"" help:"Pieces of responses as they come: deltas, or turns for none. Run asks for them on a terminal."`
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
	if req.Limits, err = s.limits(); err != nil {
		return api.Run{}, err
	}
	if s.StartAt != "" {
		at, err := instant(s.StartAt, time.Now(), true)
		if err != nil {
			return api.Run{}, fmt.Errorf("--start-at: %w", err)
		}
		start := state.At(at)
		req.StartAt = &start
	}
	run, err := e.client.Submit(e.ctx, req, s.Key)
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.CodeAgentNotFound {
		err = &misspeltError{err, nearestAgent(e, name)}
	}
	return run, err
}

// misspeltError is an error of a name, with the one that was meant, or "".
type misspeltError struct {
	error
	meant string
}

func (e *misspeltError) Unwrap() error { return e.error }

// nearestAgent is the agent whose name is like another, or "".
func nearestAgent(e *env, name string) string {
	agents, err := e.client.Agents(e.ctx)
	if err != nil {
		return "" // the error before says more
	}
	var names []string
	for _, a := range agents {
		names = append(names, a.Name)
	}
	return app.Nearest(name, names)
}

// limits are those that flags name, or nil.
func (s submission) limits() (*api.SubmitLimits, error) {
	if s.CostUSD < 0 || s.Tokens < 0 || s.MaxTurns < 0 || s.Wait < 0 {
		return nil, errors.New("--max-turns, --max-tokens, --cost-usd and --wait are limits: give none that is below 0")
	}
	l := api.SubmitLimits{MaxTurns: s.MaxTurns, TotalTokens: s.Tokens, CostUSD: state.MicroUSD(math.Round(s.CostUSD * 1e6)), Wait: model.Duration(s.Wait)}
	if s.CostUSD > 0 && l.CostUSD == 0 {
		return nil, fmt.Errorf("--cost-usd %v: the least is 0.000001", s.CostUSD)
	}
	if s.Deadline != "" {
		d, err := deadline(s.Deadline)
		if err != nil {
			return nil, err
		}
		l.Deadline = &d
	}
	if l == (api.SubmitLimits{}) {
		return nil, nil
	}
	return &l, nil
}

// instant reads a time, or a duration that lies so far behind now, or ahead of it.
func instant(text string, now time.Time, ahead bool) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if !ahead {
			d = -d
		}
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is neither a duration like 10m nor a time like 2026-11-20T15:04:05Z", text)
	}
	return at, nil
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
	stored, err := e.client.PutAgent(e.ctx, def.Name, b)
	if p, ok := errors.AsType[*api.Problem](err); ok && len(p.Errors) > 0 {
		return stored, inFile(path, p)
	}
	return stored, err
}

// inFile says where in the file the mistakes are that the gateway has found in what was read
// from it.
func inFile(path string, p *api.Problem) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return p
	}
	faults := make([]error, len(p.Errors))
	for i, f := range p.Errors {
		faults[i] = &agent.Fault{At: f.At, Text: f.Detail}
	}
	return agent.InFile(path, data, errors.Join(faults...))
}

type runCmd struct{ submission }

func (c *runCmd) Run(e *env) error {
	if e.terminal && !e.json && c.Stream == "" {
		c.Stream = "deltas"
	}
	run, err := c.submit(e)
	if err != nil {
		return err
	}
	return follow(e, run.ID, following{stopAtWait: true})
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
	ID    string `arg:"" complete:"run" help:"Run id."`
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

type psCmd struct {
	Status   string            `help:"Only these statuses, by commas."`
	Waiting  string            `help:"Only runs that wait for this, as in waiting_approval."`
	Agent    string            `complete:"agent" help:"Only this agent."`
	Parent   string            `help:"Only the runs that this one started."`
	Batch    string            `help:"Only the runs of this batch."`
	Metadata map[string]string `short:"m" help:"Only runs with this metadata, as in -m key=value."`
	Since    string            `help:"Only runs submitted since: 24h, or a time like 2026-11-20T15:04:05Z."`
	Limit    int               `default:"50" help:"Most rows."`
	Quiet    bool              `short:"q" help:"Print the ids alone, the newest first."`
}

// query is the filter as the API takes it.
func (c *psCmd) query(now time.Time) (url.Values, error) {
	q := url.Values{"limit": {fmt.Sprint(c.Limit)}}
	for name, value := range map[string]string{"status": c.Status, "waiting_reason": c.Waiting, "agent": c.Agent, "parent": c.Parent, "batch": c.Batch} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for key, value := range c.Metadata {
		q.Set("metadata."+key, value)
	}
	if c.Since != "" {
		at, err := instant(c.Since, now, false)
		if err != nil {
			return nil, fmt.Errorf("--since: %w", err)
		}
		q.Set("created_after", at.UTC().Format(time.RFC3339))
	}
	return q, nil
}

func (c *psCmd) Run(e *env) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
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
	return e.print(page, table("RUN\tAGENT\tSTATUS\tREASON\tTURNS\tTOKENS\tCOST\tAGE", page.Items, func(r api.Run) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s", r.ID, r.Agent, r.Status, orDash(r.Reason), r.TurnCount,
			r.Usage.InputTokens+r.Usage.OutputTokens, cost(r.Usage.CostUSD), time.Since(r.CreatedAt.Time).Round(time.Second))
	}))
}

// cost is what something cost, for people.
func cost(c *state.MicroUSD) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("$%.4f", float64(*c)/1e6)
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
	ID     string `arg:"" complete:"run" help:"Run id."`
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

	Drafts  agentsDraftsCmd  `cmd:"" help:"List what waits for review, or show the draft of an agent."`
	Publish agentsPublishCmd `cmd:"" help:"Publish a draft that somebody else has written."`
	Discard agentsDiscardCmd `cmd:"" help:"Remove a draft."`
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
	Name string `arg:"" complete:"agent"`
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
			text := fmt.Sprintf("%s version %d", a.Name, a.Version)
			if a.Status == api.StatusDraft {
				text += fmt.Sprintf(", a draft: somebody else looks at it and publishes it (turnpike agents drafts %s)", a.Name)
			}
			err = e.print(a, text)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

type agentsRmCmd struct {
	Name string `arg:"" complete:"agent"`
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
