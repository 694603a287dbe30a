package turnpike_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// refund is the argument of the tool pay.
type refund struct {
	Order string `jsonschema:"its number"`
	Cents int
}

func pay(ctx context.Context, r refund) (string, error) {
	if turnpike.IdempotencyKey(ctx) == "" {
		return "", errors.New("no key")
	}
	return "paid " + r.Order, nil
}

func payTool() turnpike.Tool {
	return turnpike.NewTool("pay", "Pays back.", pay, turnpike.Idempotent(), turnpike.Approval("args.Cents > 900"), turnpike.Risk("pays"))
}

// own is the state of the loop checked.
type own struct{ Made bool }

var checked = loop.Typed[own]{OnAnswer: func(t *loop.Turn, o *own, text string) loop.Decision {
	if o.Made {
		return t.Complete(state.EndCompleted, text)
	}
	o.Made = true
	return t.Next(state.Reflected, "checked", state.UserText("Check it."))
}}

// open opens a deployment on the test's own NATS server, with a worker.
func open(t *testing.T, change func(*turnpike.Options)) *turnpike.Deployment {
	t.Helper()
	o := turnpike.Options{
		NATS: turnpike.NATS{URL: testbed.NATSServer(t).URL()}, Tools: []turnpike.Tool{payTool()},
		Models: turnpike.Models{"scripted": scripted.New()}, Loops: loop.Registry{"checked": checked.Loop},
	}
	if change != nil {
		change(&o)
	}
	d, err := turnpike.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.NewWorker(turnpike.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(w.Stop(context.Background()), <-ended, d.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// dial serves a gateway of d and returns a client of it.
func dial(t *testing.T, d *turnpike.Deployment, o turnpike.GatewayOptions, token string) *turnpike.Client {
	t.Helper()
	g, err := d.NewGateway(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	server := httptest.NewServer(g)
	t.Cleanup(func() {
		stop()
		server.CloseClientConnections()
		server.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c, err := turnpike.Dial(server.URL, turnpike.DialOptions{Token: token, HTTP: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func says(texts ...string) (script []model.Scripted) {
	for _, text := range texts {
		script = append(script, model.Scripted{Text: text})
	}
	return script
}

// scriptedModel returns the provider of scripts.
func scriptedModel() model.Provider { return scripted.New() }

func calls(name string, args any) model.Scripted {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return model.Scripted{ToolCalls: []model.ScriptedCall{{Name: name, Arguments: b}}}
}

// agentOf returns an agent with a script.
func agentOf(name string, script ...model.Scripted) turnpike.Agent {
	return turnpike.Agent{Name: name, Instructions: "You help.", Model: turnpike.Model{Provider: "scripted", Responses: script}}
}

func put(t *testing.T, c *turnpike.Client, agents ...turnpike.Agent) {
	t.Helper()
	for _, a := range agents {
		if _, err := c.PutAgent(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
}

func submit(t *testing.T, c *turnpike.Client, s turnpike.Submission) *turnpike.Run {
	t.Helper()
	r, err := c.Submit(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
