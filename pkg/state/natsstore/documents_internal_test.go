package natsstore

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// busyStream is a stream in which another process has always changed the last message.
type busyStream struct{ jetstream.Stream }

func (busyStream) GetLastMsgForSubject(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return &jetstream.RawStreamMsg{Sequence: 1 << 40, Data: []byte("{}")}, nil
}

// The error of a document that other processes keep changing names the document.
func TestConflictsNameTheDocument(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), testbed.NATS(t), Config{Prefix: "busy"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.stream = busyStream{s.stream}
	err = s.PutDocument(t.Context(), state.TenantDocument, "acme", []byte("{}"))
	if want := "put " + string(state.TenantDocument) + " acme: other processes changed it"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("PutDocument = %v, want %q", err, want)
	}
}
