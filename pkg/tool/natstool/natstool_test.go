package natstool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/natstool"
)

func TestCall(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	stop, err := natstool.Serve(nc, "turnpike", natstool.Service{
		Name: "greet", Handler: func(_ context.Context, r natstool.Request) (string, error) {
			if string(r.Arguments) != `{"who":"you"}` || r.IdempotencyKey != "key" || r.CallID != "c1" {
				return "", errors.New("odd request")
			}
			return "hello", nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	answers := map[string]string{
		"json": `{"content":{"n":1}}`, "fails": `{"error":"no such thing"}`, "garbage": `hello`,
	}
	for name, answer := range answers {
		if _, err := nc.Subscribe("turnpike.tool."+name, func(m *nats.Msg) { _ = m.Respond([]byte(answer)) }); err != nil {
			t.Fatal(err)
		}
	}
	x := natstool.New(nc, "turnpike")
	call := tool.Call{ID: "c1", Arguments: json.RawMessage(`{"who":"you"}`), IdempotencyKey: "key", Deadline: time.Now().Add(time.Minute)}
	tests := []struct {
		name, want string
		isError    bool
	}{{"greet", "hello", false}, {"json", `{"n":1}`, false}, {"fails", "no such thing", true}, {"garbage", "answered something else", true}, {"nobody", "no service listens on turnpike.tool.nobody", true}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := call
			c.Name = tt.name
			got, err := x.Call(t.Context(), c)
			if err != nil || got.IsError != tt.isError || !strings.Contains(got.Content, tt.want) {
				t.Errorf("Call = %+v, %v; want %q", got, err, tt.want)
			}
		})
	}
	// An abort ends the call at once: the outcome is unknown, and so an error.
	if _, err := nc.Subscribe("turnpike.tool.hangs", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	call.Name = "hangs"
	if _, err := x.Call(ctx, call); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Call = %v, want the context's error", err)
	}
}
