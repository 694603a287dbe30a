package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/eval"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

type evalCmd struct {
	Run    evalRunCmd    `cmd:"" default:"withargs" help:"Run the cases of a file; exits 0 if all pass, 1 if some fail; see --fail-if-worse."`
	Record evalRecordCmd `cmd:"" help:"Print a file of cases made from runs."`
	Ls     evalLsCmd     `cmd:"" help:"List the stored reports, newest first."`
	Show   evalShowCmd   `cmd:"" help:"Print a stored report."`
	Rm     evalRmCmd     `cmd:"" help:"Remove a stored report. Its runs stay."`
}

type evalRunCmd struct {
	File        string `arg:"" help:"File of cases, YAML or JSON; - is standard input."`
	Agent       string `help:"Agent, or NAME@VERSION of it; default the agent of the file." placeholder:"NAME@N"`
	Against     string `help:"Version to compare with." placeholder:"NAME@N"`
	FailIfWorse bool   `help:"Exit 1 only if runs pass less often than with --against and the difference is not within chance."`
	Repeat      int    `default:"1" help:"Number of times that each case runs against each version."`
	MaxParallel int    `default:"10" help:"Maximum number of runs in flight."`
	JUnit       string `name:"junit" type:"path" help:"File to write JUnit XML to." placeholder:"FILE"`
	NoStore     bool   `help:"Do not store the report in the tenant, where others see it on the page."`
	Fresh       bool   `help:"Start over instead of continuing an evaluation that was interrupted."`
}

func (c *evalRunCmd) Run(e *env) error {
	if c.Repeat < 1 || c.MaxParallel < 1 {
		return usagef("--repeat is %d and --max-parallel is %d: set both to 1 or more", c.Repeat, c.MaxParallel)
	}
	if c.FailIfWorse && c.Against == "" {
		return usagef("--fail-if-worse compares two versions: name the other one with --against NAME@N")
	}
	data, err := e.readFile(c.File)
	if err != nil {
		return err
	}
	file, err := eval.Parse(data)
	if err != nil {
		return usagef("%s: %w", c.File, err)
	}
	o := eval.Options{File: filepath.Base(c.File), Repeat: c.Repeat, MaxParallel: c.MaxParallel}
	if o.Agents, err = c.versions(file); err != nil {
		return err
	}
	running := c.interrupted(e, data)
	running.identify(e, &o, c.Fresh)
	if e.terminal && !e.json {
		o.Progress = func(ended, all int) { fmt.Fprintf(e.errs, "\r%d of %d runs", ended, all) }
		defer fmt.Fprintln(e.errs)
	}
	report, err := eval.Run(e.ctx, e.client, file, o)
	if err != nil {
		if e.ctx.Err() != nil {
			if running.stored() {
				fmt.Fprintln(e.errs, "interrupted: to continue the evaluation, run the same command again, without --fresh")
			} else {
				fmt.Fprintln(e.errs, "interrupted: the same command starts the evaluation over")
			}
			return exitError(130)
		}
		return err
	}
	running.end()
	err = e.print(report, report.Text())
	if c.JUnit != "" {
		err = errors.Join(err, writeJUnit(c.JUnit, report))
	}
	if !c.NoStore {
		storeEval(e, report)
	}
	if err != nil {
		return err
	}
	failed := !report.Passed()
	if c.FailIfWorse {
		failed = report.Worse()
	}
	if failed {
		return exitError(1)
	}
	return nil
}

// storeTimeout bounds how long a command waits for the report to be stored.
const storeTimeout = 30 * time.Second

// storeEval stores a report in the tenant. It prints a failure, which does not change the result of the command.
func storeEval(e *env, report *eval.Report) {
	ctx, cancel := context.WithTimeout(e.ctx, storeTimeout)
	defer cancel()
	if _, err := e.client.PutEvaluation(ctx, report.ID, report.Stored()); err != nil {
		fmt.Fprintf(e.errs, "the gateway did not confirm that it stored the report (%v): keep this output, since the page may not show the report\n", err)
		return
	}
	fmt.Fprintf(e.errs, "the report is stored as %s: turnpike eval show prints it, and the page has it under Evaluations\n", report.ID)
}

// versions returns the versions that the flags name, or the agent in the file.
func (c *evalRunCmd) versions(f *eval.File) ([]eval.Version, error) {
	name := c.Agent
	if name == "" {
		name = f.Agent
	}
	if name == "" {
		return nil, usagef("no agent is named: add agent: NAME to %s, or give --agent NAME", c.File)
	}
	var all []eval.Version
	for _, text := range []string{name, c.Against} {
		if text == "" {
			continue
		}
		v, err := parseVersion(text)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	if len(all) == 2 && all[0] == all[1] {
		return nil, usagef("--against is %s, the version that is already evaluated: name another one", c.Against)
	}
	return all, nil
}

// parseVersion parses NAME or NAME@N.
func parseVersion(text string) (eval.Version, error) {
	name, version, given := strings.Cut(text, "@")
	if !given {
		return eval.Version{Agent: name}, nil
	}
	n, err := strconv.Atoi(version)
	if err != nil || n < 1 || name == "" {
		return eval.Version{}, usagef("%q is not a version of an agent: write NAME or NAME@N with N from 1", text)
	}
	return eval.Version{Agent: name, Version: n}, nil
}

func writeJUnit(name string, report *eval.Report) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(report.WriteJUnit(f), f.Close())
}

// interruptedEval is the path of a file with the id of an evaluation that is running, and its MaxParallel. A process
// that is killed leaves the file. It is empty if the user has no cache directory.
type interruptedEval string

func (c *evalRunCmd) interrupted(e *env, file []byte) interruptedEval {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q %q %d %q", c.Agent, c.Against, e.server, e.tenant, c.Repeat, file)
	return interruptedEval(filepath.Join(dir, "turnpike", "eval", hex.EncodeToString(sum.Sum(nil)[:16])))
}

// identify sets the id of the evaluation that was interrupted and the MaxParallel of its batches. If none was, or fresh
// is true, it sets and stores a new id. If the id cannot be stored, it prints that the evaluation cannot be continued.
func (f interruptedEval) identify(e *env, o *eval.Options, fresh bool) {
	if f != "" && !fresh {
		if stored, err := os.ReadFile(string(f)); err == nil && len(stored) > 0 {
			id, parallel, _ := strings.Cut(string(stored), " ")
			o.ID = id
			fmt.Fprintf(e.errs, "continuing evaluation %s; to start over, use --fresh\n", id)
			if n, err := strconv.Atoi(parallel); err == nil && n != o.MaxParallel {
				fmt.Fprintf(e.errs, "the evaluation began with --max-parallel %d and keeps it; to change it, start over with --fresh\n", n)
				o.MaxParallel = n
			}
			return
		}
	}
	o.ID = "eval_" + strings.ToLower(rand.Text()[:16])
	if f == "" {
		fmt.Fprintln(e.errs, "this user has no cache directory for the id of this evaluation, so if it is interrupted, the next evaluation starts over: to avoid that, set HOME")
		return
	}
	err := os.MkdirAll(filepath.Dir(string(f)), 0o700)
	if err == nil {
		err = os.WriteFile(string(f), fmt.Appendf(nil, "%s %d", o.ID, o.MaxParallel), 0o600)
	}
	if err != nil {
		fmt.Fprintf(e.errs, "the id of this evaluation cannot be stored (%v), so if it is interrupted, the next evaluation starts over: to avoid that, make the directory writable\n", err)
	}
}

// stored reports whether the id of the evaluation is stored, so that the next command can continue it.
func (f interruptedEval) stored() bool {
	info, err := os.Stat(string(f))
	return err == nil && info.Size() > 0
}

// end removes the file, because the evaluation is complete.
func (f interruptedEval) end() {
	if f != "" {
		_ = os.Remove(string(f)) // if this fails, the next evaluation returns the results of this one
	}
}

type evalRecordCmd struct {
	Runs []string `arg:"" complete:"run" help:"Run ids, or the ends of ids of the newest 1,000 runs."`
}

func (c *evalRecordCmd) Run(e *env) error {
	text, err := eval.Record(e.ctx, e.client, c.Runs)
	if err != nil {
		return err
	}
	_, err = e.out.Write(text)
	return err
}

type evalLsCmd struct {
	Agent string `help:"Only evaluations of this agent." complete:"agent"`
	Limit int    `default:"50" help:"Maximum number of evaluations."`
}

func (c *evalLsCmd) Run(e *env) error {
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.EvaluationSummary], error) {
		return e.client.Evaluations(e.ctx, c.Agent, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page, table("ID\tVERSION\tPASSED\tAGAINST\tPASSED\tCASES\tSTORED\tBY", page.Items, func(s api.EvaluationSummary) string {
		row := []string{s.ID}
		for i := range 2 {
			version, passed := "-", "-"
			if i < len(s.Versions) {
				v := s.Versions[i]
				version, passed = v.Version, fmt.Sprintf("%d of %d", v.Passed, v.Runs)
			}
			row = append(row, version, passed)
		}
		return strings.Join(append(row, strconv.Itoa(s.Cases), s.UpdatedAt.UTC().Format(time.RFC3339), s.UpdatedBy), "\t")
	}))
}

type evalShowCmd struct {
	ID string `arg:"" help:"Id of the evaluation, as ls prints it."`
}

func (c *evalShowCmd) Run(e *env) error {
	stored, err := e.client.Evaluation(e.ctx, c.ID)
	if err != nil {
		return err
	}
	report := eval.Report{ID: stored.ID, EvaluationTotals: stored.EvaluationTotals}
	for _, r := range stored.Results {
		report.Results = append(report.Results, eval.Result{EvaluationResult: r})
	}
	return e.print(stored, report.Text())
}

type evalRmCmd struct {
	ID string `arg:"" help:"Id of the evaluation, as ls prints it."`
}

func (c *evalRmCmd) Run(e *env) error {
	if err := e.client.DeleteEvaluation(e.ctx, c.ID); err != nil {
		return err
	}
	return e.print(map[string]string{"removed": c.ID}, "removed evaluation "+c.ID)
}
