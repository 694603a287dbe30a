package main

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type showCmd struct {
	ID     string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	Format string `enum:",openai,anthropic" default:"" help:"Print the transcript alone, in the format of openai or anthropic."`
	Raw    bool   `help:"Print the stored log alone, as JSON: one entry per line."`
}

func (c *showCmd) Run(e *env) error {
	if c.Raw && c.Format != "" {
		return errors.New("--raw and --format are both given, and exclude each other: remove one of them")
	}
	if c.Format != "" {
		doc, err := e.client.Export(e.ctx, c.ID, c.Format)
		if err != nil {
			return err
		}
		return e.document(doc)
	}
	if c.Raw {
		entries, err := e.client.Entries(e.ctx, c.ID)
		for _, entry := range entries {
			if err := e.document(entry); err != nil {
				return err
			}
		}
		return err
	}
	run, err := e.client.Get(e.ctx, c.ID)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(run, "")
	}
	turns, err := e.client.Turns(e.ctx, c.ID)
	if err != nil {
		return err
	}
	messages, err := e.client.Messages(e.ctx, c.ID)
	if err != nil {
		return err
	}
	tree, err := tree(e, run.ID, "")
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "run       %s\nagent     %s, version %d, loop %s\nstatus    %s", run.ID, agentOf(run), run.AgentVersion, run.Loop, run.Status)
	if run.Reason != nil {
		fmt.Fprintf(&b, " (%s)", *run.Reason)
	}
	fmt.Fprintf(&b, "\nturns     %d, version %d\ntokens    %d in, %d out; %s, %s\n",
		run.TurnCount, run.Version, run.Usage.InputTokens, run.Usage.OutputTokens, count(int(run.Usage.ModelCalls), "model call"), count(int(run.Usage.ToolCalls), "tool call"))
	if text := unpriced(run); text != "" {
		fmt.Fprintln(&b, text)
	}
	if run.Error != nil {
		fmt.Fprintf(&b, "error     %s: %s\n", run.Error.Code, run.Error.Message)
	}
	if n := len(turns); n > 0 && turns[n-1].Version == run.Version && run.Terminal() && run.Error == nil && turns[n-1].Detail != "" {
		fmt.Fprintf(&b, "because   %s\n", turns[n-1].Detail)
	}
	if run.Waiting != nil {
		for _, call := range run.Waiting.Calls {
			fmt.Fprintf(&b, "waits     %s %s %s%s%s\n", call.ID, call.Tool, call.Arguments, by(call.RunID), risk(call))
			if call.Again != nil {
				fmt.Fprintf(&b, "          ! %s\n          the model's arguments were %s\n", call.Message, call.Again.OriginalArguments)
			}
			for _, text := range watch.Provenance(call.ArgsFromUntrusted, call.Sources) {
				fmt.Fprintf(&b, "          ! %s\n", text)
			}
		}
		if run.Waiting.Question != nil {
			fmt.Fprintf(&b, "asks      %s\n", *run.Waiting.Question)
		}
	}
	if run.Parent != nil {
		fmt.Fprintf(&b, "parent    %s, for its call %s\n", run.Parent.RunID, run.Parent.CallID)
	}
	if tree != "" {
		b.WriteString("\n" + tree)
	}
	b.WriteString("\n" + table("VERSION\tTURN\tREASON\tSTATUS\tATTEMPT\tWORKER\tMS\tTOOLS", turns, func(t api.Turn) string {
		var names []string
		for _, call := range t.ToolCalls {
			names = append(names, call.Name)
		}
		return fmt.Sprintf("%d\t%d\t%s\t%s\t%d\t%s\t%d\t%s", t.Version, t.Turn, t.Reason, t.Status, t.Attempt, t.Worker, t.DurationMS, strings.Join(names, " "))
	}) + "\n\n")
	for _, m := range messages {
		b.WriteString(messageLines(m))
	}
	return e.print(nil, strings.TrimRight(b.String(), "\n"))
}

// agentOf returns the agent of a run for display. For a draft, whose name is generated, it returns the name of the
// agent in the definition.
func agentOf(r api.Run) string {
	if of := r.Metadata["draft"]; of != "" && strings.HasPrefix(r.Agent, "draft-") {
		return "draft of " + of
	}
	return r.Agent
}

func by(run *string) string {
	if run == nil {
		return ""
	}
	return " by " + *run
}

// tree returns the runs below a run, one per line, the oldest first.
func tree(e *env, id, indent string) (string, error) {
	children, err := listRuns(e, url.Values{"parent": {id}}, math.MaxInt)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, r := range slices.Backward(children.Items) { // the newest first
		fmt.Fprintf(&b, "%s└ %s %s %s (%s)\n", indent, r.ID, agentOf(r), r.Status, orDash(r.Reason))
		below, err := tree(e, r.ID, indent+"  ")
		if err != nil {
			return "", err
		}
		b.WriteString(below)
	}
	return b.String(), nil
}

func messageLines(m api.Message) string {
	var b strings.Builder
	for _, p := range m.Parts {
		switch p.Type {
		case state.PartToolCall:
			fmt.Fprintf(&b, "%-9s → %s %s\n", m.Role, p.Name, p.Arguments)
		case state.PartToolResult:
			fmt.Fprintf(&b, "%-9s ← %s\n", m.Role, p.Content)
			if n := len(p.Images); n > 0 {
				fmt.Fprintf(&b, "%-9s   [%d images]\n", m.Role, n)
			}
			for _, f := range p.Files {
				fmt.Fprintf(&b, "%-9s   %s\n", m.Role, f.FileLabel())
			}
		case state.PartProviderTool:
			fmt.Fprintf(&b, "%-9s ⇄ %s %s (run by the model's provider)\n", m.Role, p.Name, p.Arguments)
			if p.Content != "" {
				fmt.Fprintf(&b, "%-9s ← %s\n", m.Role, p.Content)
			}
		case state.PartText:
			fmt.Fprintf(&b, "%-9s %s\n", m.Role, p.Text)
		case state.PartFile:
			fmt.Fprintf(&b, "%-9s %s\n", m.Role, p.FileLabel())
		default:
			fmt.Fprintf(&b, "%-9s [%s]\n", m.Role, p.Type)
		}
	}
	return b.String()
}
