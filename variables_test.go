package turnpike_test

import (
	"encoding/json"
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
