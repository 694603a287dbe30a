package turnpike_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/turnpiketest"
)

// A submission and a fork set the variables of an agent, from a struct or a map.
func TestVariables(t *testing.T) {
	t.Parallel()
	k := turnpiketest.New(t, turnpike.Options{})
	a := agentOf("greeter", says("Hello.")...)
	a.Instructions, a.Variables = "Greet {{who}}.", turnpike.MustSchema[struct {
		Who string `json:"who"`
	}]()
	put(t, k.Client, a)
	for _, values := range []any{map[string]string{"who": "Ada"}, struct {
		Who string `json:"who"`
	}{"Ada"}} {
		r := submit(t, k.Client, turnpike.Submission{Agent: "greeter", Input: "Go.", Variables: values})
		messages, err := r.History(t.Context())
		if err != nil || len(messages) == 0 || messages[0].Text() != "Greet Ada." {
			t.Errorf("messages = %+v, %v", messages, err)
		}
		turn := 0
		f, err := r.Fork(t.Context(), turnpike.Fork{Turn: &turn, Variables: json.RawMessage(`{"who": "Bo"}`)})
		if err != nil {
			t.Fatal(err)
		}
		if messages, err := f.History(t.Context()); err != nil || messages[0].Text() != "Greet Bo." {
			t.Errorf("messages of the fork = %+v, %v", messages, err)
		}
	}
	if _, err := k.Submit(t.Context(), turnpike.Submission{Agent: "greeter", Input: "Go."}); err == nil {
		t.Error("a submission without a required variable is accepted")
	}
	if _, err := k.Submit(t.Context(), turnpike.Submission{Agent: "greeter", Input: "Go.", Variables: make(chan int)}); err == nil {
		t.Error("a submission whose variables cannot be encoded is accepted")
	}
}

// A request with a field that is not JSON is ErrInvalid, and the error names the field.
func TestFieldsThatAreNotJSON(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	wrong := json.RawMessage(`{"type":`)
	for name, c := range map[string]*turnpike.Client{"in process": d.Client, "over HTTP": dial(t, d, turnpike.GatewayOptions{Auth: turnpike.NoAuth()}, "")} {
		r := c.RunByID("run_01ARZ3NDEKTSV4RRFFQ69G5FAV")
		for field, request := range map[string]func(context.Context) error{
			"output_schema": func(ctx context.Context) error {
				_, err := c.Submit(ctx, turnpike.Submission{Agent: "plain", Input: "x", OutputSchema: wrong})
				return err
			},
			"runs[0].output_schema": func(ctx context.Context) error {
				_, err := c.SubmitBatch(ctx, turnpike.Batch{Runs: []turnpike.Submission{{Agent: "plain", Input: "x", OutputSchema: wrong}}})
				return err
			},
			"input": func(ctx context.Context) error {
				_, err := r.Fork(ctx, turnpike.Fork{Turn: new(1), Input: json.RawMessage("And more?")})
				return err
			},
			"message": func(ctx context.Context) error {
				return r.Signal(ctx, turnpike.Signal{Message: json.RawMessage("hello")})
			},
		} {
			err := request(t.Context())
			p, ok := errors.AsType[*turnpike.Error](err)
			if !ok || !errors.Is(err, turnpike.ErrInvalid) || !strings.Contains(p.Detail, `"`+field+`"`) {
				t.Errorf("%s, %s is not JSON: %v", name, field, err)
			}
		}
	}
}
