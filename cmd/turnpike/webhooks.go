package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type webhooksCmd struct {
	Ls      webhooksLsCmd      `cmd:"" help:"List the events that could not be delivered."`
	Pending webhooksPendingCmd `cmd:"" help:"List the events that wait for their receivers."`
	Replay  webhooksReplayCmd  `cmd:"" help:"Deliver such events again."`
	Test    webhooksTestCmd    `cmd:"" help:"Send a test event to a receiver, from this computer or from a worker."`
}

const deadWebhook = "webhook" // the kind of dead letter

type webhooksLsCmd struct {
	Open bool `help:"Only events that can be delivered again."`
}

func (c *webhooksLsCmd) Run(e *env) error {
	return (&deadLsCmd{Open: c.Open, kind: deadWebhook}).Run(e)
}

type webhooksPendingCmd struct {
	Limit int `default:"50" help:"Maximum number of events, those of the oldest run first."`
}

func (c *webhooksPendingCmd) Run(e *env) error {
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.PendingEvent], error) {
		return e.client.PendingEvents(e.ctx, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page, table("RUN\tEVENT\tAGE\tATTEMPTS\tNEXT\tHOST\tREASON\tLAST ERROR", page.Items, func(p api.PendingEvent) string {
		next := max(0, time.Until(p.NextAttemptAt.Time)).Round(time.Second)
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s", p.RunID, p.Type, time.Since(p.Since.Time).Round(time.Second), p.Attempts, next, p.Host, p.Reason, firstLine(p.LastError))
	}))
}

type webhooksReplayCmd struct {
	Letters []uint64 `arg:"" optional:"" help:"Numbers of letters."`
	All     bool     `help:"Every event that can be delivered again."`
}

func (c *webhooksReplayCmd) Run(e *env) error {
	for _, seq := range c.Letters {
		l, err := e.client.DeadLetter(e.ctx, seq)
		if err != nil {
			return err
		}
		if l.Kind != deadWebhook {
			return usagef("letter %d has the kind %s, which is not an event of a webhook: use turnpike dead replay", seq, l.Kind)
		}
	}
	return (&deadReplayCmd{Letters: c.Letters, All: c.All, kind: deadWebhook}).Run(e)
}

type webhooksTestCmd struct {
	URL    string   `arg:"" help:"Address of the receiver."`
	Secret []string `placeholder:"NAME" help:"Name of the secret that signs the event; repeat it for each of two secrets. Without it, the event is not signed. Its value is in the variable TURNPIKE_SECRET_NAME here; with --worker, the worker has it."`
	Worker bool     `help:"Have a worker send the event, as it sends those of runs, and print what the receiver has answered."`
}

func (c *webhooksTestCmd) Run(e *env) error {
	to := state.Webhook{URL: c.URL}
	for _, name := range c.Secret {
		to.Secret = append(to.Secret, "secret://"+strings.TrimPrefix(name, "secret://"))
	}
	if c.Worker {
		return c.throughWorker(e, to)
	}
	if err := to.Check(); err != nil {
		return usagef("%w", err)
	}
	var values []string
	for _, ref := range to.Secret {
		name := strings.TrimPrefix(ref, "secret://")
		value := os.Getenv("TURNPIKE_SECRET_" + name)
		if value == "" {
			return usagef("TURNPIKE_SECRET_%s is not set: set it to the secret that signs the test event", name)
		}
		values = append(values, value)
	}
	// Do not follow redirects, as workers do not.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if err := webhook.Sample(e.ctx, client, to, values); err != nil {
		return fmt.Errorf("the receiver did not accept the test event (%v): correct this cause, or find it in the log of the receiver", err) //nolint:errorlint // it is not an error of the gateway
	}
	return e.print(map[string]string{"delivered": c.URL}, "the receiver has accepted the event")
}

// throughWorker makes a worker send the event, and waits for the result.
func (c *webhooksTestCmd) throughWorker(e *env, to state.Webhook) error {
	t, err := e.client.TestWebhook(e.ctx, api.WebhookTestRequest{URL: to.URL, Secret: to.Secret})
	if err != nil {
		return err
	}
	look := time.NewTicker(lookAtTest)
	defer look.Stop()
	for t.Status == api.TestPending {
		select {
		case <-look.C:
		case <-e.ctx.Done():
			return e.ctx.Err()
		}
		if t, err = e.client.WebhookTest(e.ctx, t.ID); err != nil {
			return err
		}
	}
	answered := ""
	if t.ResponseStatus != 0 {
		answered = fmt.Sprintf(" %d after %d ms", t.ResponseStatus, t.LatencyMS)
	}
	if t.Status == api.TestFailed {
		if err := e.print(t, strings.TrimSpace("failed  "+t.Worker+answered)); err != nil {
			return err
		}
		return fmt.Errorf("the receiver did not accept the test event (%s): correct this cause, or find it in the log of the receiver", t.Error)
	}
	return e.print(t, "delivered  "+t.Worker+answered)
}

// lookAtTest is the time between two reads of a test event that a worker must send.
const lookAtTest = 200 * time.Millisecond
