package natsbus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	refused := &jetstream.APIError{}
	tests := []struct {
		name, data, status string
		want               error // nil: stored
		as                 any
	}{
		{name: "stored", data: `{"stream":"TURNPIKE_TURNS","seq":7}`},
		{name: "stored before", data: `{"stream":"TURNPIKE_TURNS","seq":7,"duplicate":true}`},
		{name: "fields in another order", data: `{"seq":7, "stream":"TURNPIKE_TURNS"}`},
		{name: "no stream listens", status: "503", want: jetstream.ErrNoStreamResponse},
		{name: "refused", data: `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`, as: &refused},
		{name: "refused, the stream first", data: `{"stream":"S","seq":0,"error":{"code":400,"description":"no"}}`, as: &refused},
		{name: "no stream", data: `{"seq":7}`, want: jetstream.ErrInvalidJSAck},
		{name: "no JSON", data: `+OK`, want: jetstream.ErrInvalidJSAck},
		{name: "nothing", want: jetstream.ErrInvalidJSAck},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := nats.NewMsg("answer")
			m.Data = []byte(tt.data)
			if tt.status != "" {
				m.Header.Set("Status", tt.status)
			}
			err := verdict(m)
			switch {
			case tt.as != nil:
				if !errors.As(err, tt.as) {
					t.Errorf("verdict = %v, want the server's error", err)
				}
			case !errors.Is(err, tt.want):
				t.Errorf("verdict = %v, want %v", err, tt.want)
			}
		})
	}
}

// A waiting caller learns when no answer will come: when the connection of its request, its context or its
// timeout ends.
func TestAnswersThatDoNotCome(t *testing.T) {
	t.Parallel()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	nc, err := nats.Connect(srv.ClientURL(), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	silent, err := nc.SubscribeSync("silent") // receives, and never answers
	if err != nil {
		t.Fatal(err)
	}
	a, stop, err := listenForAnswers(nc)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ask := func() pending {
		t.Helper()
		p, err := a.send(nats.NewMsg("silent"))
		if err == nil {
			_, err = silent.NextMsgWithContext(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := ask().wait(t.Context(), time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("wait = %v, want a timeout", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask().wait(over, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("wait = %v, want the context's end", err)
	}
	lost := ask()
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	if err := lost.wait(t.Context(), time.Hour); !errors.Is(err, nats.ErrDisconnected) {
		t.Errorf("wait = %v, want the end of the connection", err)
	}
	late := ask()
	a.drop(nats.ErrTimeout, 0)
	if err := late.wait(t.Context(), time.Hour); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("wait = %v, want a timeout", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) != 0 {
		t.Errorf("%d requests are kept without a waiting caller", len(a.open))
	}
}
