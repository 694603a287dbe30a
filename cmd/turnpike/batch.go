package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type batchCmd struct {
	Submit batchSubmitCmd `cmd:"" default:"withargs" help:"Submit one run per line of a file."`
	Show   batchShowCmd   `cmd:"" help:"Show the progress of a batch."`
	Ls     batchLsCmd     `cmd:"" help:"List batches, the newest first."`
}

type batchSubmitCmd struct {
	Agent       string `arg:"" complete:"agent" help:"Name of an agent, or a file that defines one."`
	File        string `arg:"" help:"File with one input per line, text or JSON; - is standard input."`
	MaxParallel int    `help:"Maximum number of runs in flight; default all."`

	CountWaiting bool `help:"Count runs that wait for a person as in flight."`

	Key  string `help:"Idempotency key."`
	Wait bool   `help:"Wait until all have ended, and show each as it ends; exits 0 only if all complete."`
}

func (c *batchSubmitCmd) Run(e *env) error {
	runs, err := c.read(e.in)
	if err != nil {
		return err
	}
	name, err := agentName(e, c.Agent)
	if err != nil {
		return err
	}
	for i := range runs {
		if runs[i].Agent == "" {
			runs[i].Agent = name
		}
	}
	b, err := e.client.SubmitBatch(e.ctx, api.BatchRequest{Runs: runs, MaxParallel: c.MaxParallel, CountWaiting: c.CountWaiting}, c.Key)
	if err != nil {
		return err
	}
	if !c.Wait {
		return e.print(b, b.BatchID)
	}
	return c.follow(e, b)
}

func (c *batchSubmitCmd) read(in io.Reader) ([]api.SubmitRequest, error) {
	source := "standard input"
	if c.File != "-" {
		source = c.File
		f, err := os.Open(c.File)
		if err != nil {
			return nil, named(err)
		}
		defer f.Close()
		in = f
	}
	runs, err := readRuns(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return runs, nil
}

// maxLine is the maximum length of a line of a batch, in bytes: the maximum size of a submission.
const maxLine = 1 << 20

// readRuns reads one run per line: a JSON object is a whole submission, another JSON value is an input, and any other
// line is the text of an input. It skips empty lines.
func readRuns(r io.Reader) ([]api.SubmitRequest, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine+1) // with the line feed
	var runs []api.SubmitRequest
	n := 1
	for ; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		run, err := readRun(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		runs = append(runs, run)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d is longer than %d bytes, the maximum: shorten its input", n, maxLine)
	} else if err != nil {
		return nil, named(err)
	}
	if len(runs) == 0 {
		return nil, errors.New("it has no input: write one input per line")
	}
	if len(runs) > state.MaxBatch {
		return nil, fmt.Errorf("it has %d inputs, a batch may have at most %d: submit several batches", len(runs), state.MaxBatch)
	}
	return runs, nil
}

func readRun(line []byte) (run api.SubmitRequest, err error) {
	switch line[0] {
	case '{':
		err = api.Decode(line, &run)
		return run, err
	case '[', '"':
		if !json.Valid(line) {
			return run, fmt.Errorf("the input begins with %c but is not JSON: correct the JSON, or write the text as a JSON string", line[0])
		}
		run.Input = bytes.Clone(line)
		return run, nil
	default:
		run.Input, err = json.Marshal(string(line))
		return run, err
	}
}

// follow prints the runs of a batch as they end, and returns the error for the exit code of the batch.
func (*batchSubmitCmd) follow(e *env, accepted api.BatchAccepted) error {
	if !e.json {
		fmt.Fprintf(e.out, "batch %s\n", accepted.BatchID)
	}
	end := 0
	b, err := e.client.WaitBatch(e.ctx, accepted.BatchID, func(b api.Batch, run api.Run) {
		if e.json {
			if line, err := json.Marshal(run); err == nil && run.Terminal() {
				fmt.Fprintf(e.out, "%s\n", line)
			}
			return
		}
		digits := len(fmt.Sprint(b.Total))
		if !run.Terminal() {
			fmt.Fprintf(e.out, "%*s  %s  %s\n", 2*digits+1, "", run.ID, orDash(run.Reason))
			return
		}
		end++
		line := run.Status
		if run.Output != nil {
			line += "  " + firstLine(*run.Output)
		} else if run.Error != nil {
			line += "  " + firstLine(run.Error.Message)
		}
		fmt.Fprintf(e.out, "%*d/%d  %s  %s\n", digits, end, b.Total, run.ID, line)
	})
	if e.ctx.Err() != nil {
		return exitError(130)
	}
	if err != nil {
		return err
	}
	if !e.json {
		fmt.Fprintln(e.out, counts(b))
	}
	for _, worst := range []struct {
		status state.Status
		code   exitError
	}{{state.Failed, exitFailed}, {state.Incomplete, exitIncomplete}, {state.Cancelled, exitCancelled}} {
		if b.Counts[string(worst.status)] > 0 {
			return worst.code
		}
	}
	return nil
}

// lineWidth is the maximum length of an output that is printed on one line.
const lineWidth = 80

func firstLine(text string) string {
	text, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	runes := []rune(text)
	if len(runes) > lineWidth {
		runes, rest = runes[:lineWidth], "more"
	}
	if rest != "" {
		return string(runes) + "…"
	}
	return string(runes)
}

// counts returns a text with the number of a batch's runs in each status.
func counts(b api.Batch) string {
	return fmt.Sprintf("%d runs, at most %d at once: %s", b.Total, b.MaxParallel, counted(b.Counts))
}

func counted(counts map[string]int) string {
	var parts []string
	for _, status := range state.Statuses() {
		if n := counts[string(status)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	return strings.Join(parts, ", ")
}

type batchLsCmd struct {
	Limit int `default:"20" help:"Maximum number of batches."`
}

func (c *batchLsCmd) Run(e *env) error {
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.BatchSummary], error) {
		return e.client.Batches(e.ctx, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page.Items, table("BATCH\tCREATED\tRUNS\tSTANDING", page.Items, func(b api.BatchSummary) string {
		return fmt.Sprintf("%s\t%s\t%d\t%s", b.ID, b.CreatedAt.Local().Format(time.DateTime), b.Total, counted(b.Counts))
	}))
}

type batchShowCmd struct {
	ID string `arg:"" help:"Batch id."`
}

func (c *batchShowCmd) Run(e *env) error {
	b, err := e.client.Batch(e.ctx, c.ID)
	if err != nil {
		return err
	}
	return e.print(b, counts(b)+"\n"+table("N\tRUN\tSTATUS\tREASON", b.Items, func(r api.BatchRun) string {
		return fmt.Sprintf("%d\t%s\t%s\t%s", r.Index, r.ID, r.Status, orDash(r.Reason))
	}))
}
