package main

import (
	"net/http/httptest"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/model"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	k := tt.New(t, turnpike.Options{})
	a := turnpike.Agent{
		Name:  "clerk", // its first answer does not match Answer, so the model gets the error
		Model: turnpike.Model{Provider: "scripted", Responses: []model.Scripted{tt.Says("It was."), tt.Says(`{"Refunded":true}`)}},
	}
	if _, err := k.PutAgent(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	g, err := k.NewGateway(turnpike.GatewayOptions{Auth: turnpike.NoAuth()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	defer server.Close()
	defer server.CloseClientConnections()
	c, err := turnpike.Dial(server.URL, turnpike.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := ask(t.Context(), c, "ticket-7", "Order 7 broke."); err != nil || !got.Refunded {
			t.Error(got, err)
		}
	}
}
