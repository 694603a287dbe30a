package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type restoreCmd struct {
	Status  restoreStatusCmd  `cmd:"" default:"withargs" help:"Show whether the deployment waits for a decision, and the affected runs and calls."`
	Accept  restoreAcceptCmd  `cmd:"" help:"Continue every run from the older copy. Calls that it lacks may happen twice."`
	Abandon restoreAbandonCmd `cmd:"" help:"Cancel the runs that the older copy may have in an older state, and continue the others."`
}

type restoreStatusCmd struct{}

func (*restoreStatusCmd) Run(e *env) error {
	r, err := e.client.Restore(e.ctx)
	if err != nil {
		return err
	}
	if r.Status != api.RestoreWaiting {
		return e.print(r, "ok: the store is not older than NATS")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: the store is older than NATS. It lacks at least %s", r.Status, time.Duration(r.BehindSeconds)*time.Second)
	if r.Since != nil {
		fmt.Fprintf(&b, " of what happened until %s", r.Since.Local().Format(time.DateTime))
	}
	fmt.Fprintf(&b, ".\nNo run starts or continues until you decide.\n\n%d runs with newer turns in NATS, %d that the store lacks, %d that may have continued; at least %d calls may happen twice\n\n",
		r.Counts.Ahead, r.Counts.Missing, r.Counts.Active, r.Counts.Calls)
	b.WriteString(table("RUN\tTENANT\tAGENT\tFOUND\tSTATUS\tVERSION\tIN NATS\tCALLS THAT MAY HAPPEN TWICE", r.Runs, func(run api.RestoreRun) string {
		var calls []string
		for _, c := range run.Calls {
			text := c.Tool + " " + firstLine(c.Arguments)
			if c.Idempotent {
				text += " (idempotent)"
			}
			calls = append(calls, text)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s", run.RunID, run.Tenant, run.Agent, run.Found, run.Status, run.Version, run.NATSVersion, strings.Join(calls, "; "))
	}))
	if r.Truncated {
		fmt.Fprintf(&b, "\n… the first %d", len(r.Runs))
	}
	b.WriteString("\n\nturnpike restore accept     continues every run from the older copy\n" +
		"turnpike restore abandon    cancels these runs, and continues the others\n" +
		"Or restore a newer copy of the store: then the runs continue without a decision.")
	return e.print(r, b.String())
}

type restoreAcceptCmd struct{}

func (*restoreAcceptCmd) Run(e *env) error {
	d, err := e.client.AcceptRestore(e.ctx)
	if err != nil {
		return err
	}
	return e.print(d, "accepted: every run continues from the older copy")
}

type restoreAbandonCmd struct{}

func (*restoreAbandonCmd) Run(e *env) error {
	d, err := e.client.AbandonRestore(e.ctx)
	if err != nil {
		return err
	}
	return e.print(d, fmt.Sprintf("abandoned: %d runs are cancelled, the others continue", d.Cancelled))
}
