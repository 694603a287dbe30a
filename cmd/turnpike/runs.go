package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// print writes v as JSON if the user has requested that, else text.
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

// document writes a document in JSON: the same for programs, and with escapes for what could command a terminal.
func (e *env) document(doc []byte) error {
	_, err := fmt.Fprintln(watch.EscapedJSON(e.content), string(doc))
	return err
}

// submission has the flags that `run` and `submit` share.
type submission struct {
	Agent    string            `arg:"" complete:"agent" help:"Name of an agent, or a file that defines one."`
	Input    string            `arg:"" optional:"" help:"Input of the run; - reads it from standard input."`
	From     string            `type:"existingfile" help:"File with the input as JSON: messages, or a transcript as show --format prints it."`
	File     []string          `sep:"none" help:"File that the model reads with the input; may be repeated." placeholder:"PATH"`
	StartAt  string            `help:"When to start: a time like 2026-11-20T15:04:05Z, or 10m from now."`
	MaxTurns int               `help:"Maximum number of model calls."`
	Tokens   int64             `name:"max-tokens" help:"Maximum number of tokens, in and out."`
	CostUSD  float64           `name:"cost-usd" help:"Maximum cost, in US dollars."`
	Deadline string            `help:"Time to finish, as in 10m; a number is seconds."`
	Wait     time.Duration     `help:"Longest wait for a person or a result, as in 24h."`
	Priority string            `enum:"high,normal,low" default:"normal" help:"Lane: ${enum}."`
	Metadata map[string]string `short:"m" help:"Metadata, as in -m key=value."`
	Var      map[string]string `mapsep:"none" help:"Value of a variable of the agent, as in --var name=text, or --var name:=JSON." placeholder:"NAME=TEXT"`
	Key      string            `help:"Idempotency key."`
	Stream   string            `enum:",turns,deltas" default:"" help:"Stream partial responses (deltas), or complete ones only (turns). On a terminal, turnpike run defaults to deltas."`
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
	if input, err = e.withFiles(input, s.File); err != nil {
		return api.Run{}, err
	}
	req := api.SubmitRequest{Agent: name, Input: input, Priority: s.Priority, Metadata: s.Metadata, Stream: s.Stream}
	if req.Limits, err = s.limits(); err != nil {
		return api.Run{}, err
	}
	if req.Variables, err = variables(s.Var); err != nil {
		return api.Run{}, err
	}
	if s.StartAt != "" {
		at, err := instant(s.StartAt, time.Now(), true)
		if err != nil {
			return api.Run{}, usagef("--start-at: %w", err)
		}
		start := state.At(at)
		req.StartAt = &start
	}
	run, err := e.client.Submit(e.ctx, req, s.Key)
	return run, misspelt(e, name, err)
}

// misspelt adds the most similar agent name to an error for an unknown agent.
func misspelt(e *env, name string, err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.CodeAgentNotFound {
		return &misspeltError{err, nearestAgent(e, name)}
	}
	return err
}

// misspeltError is the error for an unknown agent, with the most similar name, or "".
type misspeltError struct {
	error
	meant string
}

func (e *misspeltError) Unwrap() error { return e.error }

// nearestAgent returns the name of the agent most similar to name, or "".
func nearestAgent(e *env, name string) string {
	agents, err := e.client.Agents(e.ctx)
	if err != nil {
		return "" // the error for the unknown agent matters more
	}
	var names []string
	for _, a := range agents {
		names = append(names, a.Name)
	}
	return keys.Nearest(name, names)
}

// variables returns a JSON object with the values of the flags --var, or nil without such flags.
func variables(given map[string]string) (json.RawMessage, error) {
	if len(given) == 0 {
		return nil, nil
	}
	values := map[string]json.RawMessage{}
	for name, text := range given {
		value := api.Text(text)
		if of, ok := strings.CutSuffix(name, ":"); ok {
			if name, value = of, json.RawMessage(text); !json.Valid(value) {
				return nil, usagef("--var %s:=%s is not JSON: correct it, or pass a text with --var %s=TEXT", name, text, name)
			}
		}
		values[name] = value
	}
	return json.Marshal(values)
}

// limits returns the limits that flags set, or nil.
func (s submission) limits() (*api.SubmitLimits, error) {
	if s.CostUSD < 0 || s.Tokens < 0 || s.MaxTurns < 0 || s.Wait < 0 {
		return nil, usagef("--max-turns is %d, --max-tokens %d, --cost-usd %v and --wait %s, and one of them is negative: set 0 or more in each", s.MaxTurns, s.Tokens, s.CostUSD, s.Wait)
	}
	l := api.SubmitLimits{MaxTurns: s.MaxTurns, TotalTokens: s.Tokens, CostUSD: state.MicroUSD(math.Round(s.CostUSD * 1e6)), Wait: model.Duration(s.Wait)}
	if s.CostUSD > 0 && l.CostUSD == 0 {
		return nil, usagef("--cost-usd %v is too small: set 0.000001 or more", s.CostUSD)
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

// instant parses a time, or a duration before now, or after now if ahead is true.
func instant(text string, now time.Time, ahead bool) (time.Time, error) {
	if d, err := agent.ParseDuration(text); err == nil {
		if !ahead {
			d = -d
		}
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is neither a duration nor a time: write one such as 10m, 7d or 2026-11-20T15:04:05Z", text)
	}
	return at, nil
}

// input returns the input argument, or the contents of the input file.
func (s submission) input(in io.Reader) (json.RawMessage, error) {
	switch {
	case s.Input == "" && s.From == "":
		return nil, usagef("the input is missing: give INPUT or --from FILE")
	case s.Input != "" && s.From != "":
		return nil, usagef("INPUT and --from are both given: remove one of them")
	}
	if s.From == "" {
		text, err := said(s.Input, in)
		if err == nil && s.Input == "-" && strings.TrimSpace(text) == "" {
			err = errors.New("INPUT is -, which stands for standard input, but standard input is empty: pipe the input in")
		}
		return api.Text(text), err
	}
	b, err := os.ReadFile(s.From)
	if err == nil && !json.Valid(b) {
		err = fmt.Errorf("%s is not JSON: --from needs messages such as [{\"role\": \"user\", \"content\": \"…\"}]; for plain text run `turnpike run %s - < %s`", s.From, s.Agent, s.From)
	}
	return b, err
}

// said returns text, or the contents of standard input for -.
func said(text string, in io.Reader) (string, error) {
	if text != "-" {
		return text, nil
	}
	b, err := io.ReadAll(in)
	return string(b), err
}

// deadline parses the API's forms of a deadline: a duration, a time, or a number of
// seconds.
func deadline(text string) (d api.Deadline, err error) {
	raw := api.Text(text)
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		raw = json.RawMessage(text)
	}
	if d.UnmarshalJSON(raw) != nil {
		return d, usagef("--deadline %q is not valid: write a duration such as 10m, a number of seconds, or a time such as 2026-11-20T15:04:05Z", text)
	}
	return d, nil
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

type psCmd struct {
	Status   string            `help:"Only these statuses, separated by commas."`
	Waiting  string            `help:"Only runs that wait for this, as in waiting_approval."`
	Agent    string            `complete:"agent" help:"Only this agent."`
	Parent   string            `help:"Only child runs of this run."`
	Batch    string            `help:"Only the runs of this batch."`
	Metadata map[string]string `short:"m" help:"Only runs with this metadata, as in -m key=value."`
	Since    string            `help:"Only runs submitted since: 24h, 7d, or a time like 2026-11-20T15:04:05Z."`
	Text     string            `help:"Only runs that have this text in their input, answer, error, question, metadata or id, among the newest 1,000 that match the other flags."`
	Trouble  bool              `help:"Only runs with failures, whatever their end, among the newest 1,000 that match the other flags."`
	Limit    int               `default:"50" help:"Maximum number of rows."`
	Quiet    bool              `short:"q" help:"Print only the ids, the newest first."`
}

// query returns the filter as parameters of the API.
func (c *psCmd) query(now time.Time) (url.Values, error) {
	if err := checkLimit(c.Limit); err != nil {
		return nil, err
	}
	q := url.Values{}
	for name, value := range map[string]string{"status": c.Status, "waiting_reason": c.Waiting, "agent": c.Agent, "parent": c.Parent, "batch": c.Batch, "text": c.Text} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if c.Trouble {
		q.Set("trouble", "true")
	}
	for key, value := range c.Metadata {
		q.Set("metadata."+key, value)
	}
	if c.Since != "" {
		at, err := instant(c.Since, now, false)
		if err != nil {
			return nil, usagef("--since: %w", err)
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
	page, err := listRuns(e, q, c.Limit)
	if err != nil {
		return err
	}
	if page.NextCursor == nil && page.Complete != nil && !*page.Complete {
		fmt.Fprintf(e.errs, "only the newest %d matching runs were searched, there are older ones: narrow the list with --agent, --status or -m\n", *page.Examined)
	}
	if c.Quiet && !e.json {
		for _, r := range page.Items {
			fmt.Fprintln(e.out, r.ID)
		}
		return nil
	}
	return e.print(page, table("RUN\tAGENT\tSTATUS\tREASON\tTURNS\tTOKENS\tCOST\tAGE", page.Items, func(r api.Run) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s", r.ID, agentOf(r), r.Status, orDash(r.Reason), r.TurnCount,
			r.Usage.InputTokens+r.Usage.OutputTokens, cost(r.Usage.CostUSD), time.Since(r.CreatedAt.Time).Round(time.Second))
	}))
}

// listRuns reads up to limit runs that match a filter, the newest first.
func listRuns(e *env, q url.Values, limit int) (api.Page[api.Run], error) {
	return upTo(limit, func(cursor string, limit int) (api.Page[api.Run], error) {
		q.Set("limit", strconv.Itoa(limit))
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		return e.client.List(e.ctx, q)
	})
}

// cost formats a cost for people.
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
	_ = w.Flush() // a strings.Builder accepts everything
	return strings.TrimRight(b.String(), "\n")
}

type cancelCmd struct {
	ID     string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	Reason string `help:"Reason."`
}

func (c *cancelCmd) Run(e *env) error {
	run, err := e.client.Cancel(e.ctx, c.ID, c.Reason)
	if err != nil {
		return err
	}
	return e.print(run, "abort accepted")
}
