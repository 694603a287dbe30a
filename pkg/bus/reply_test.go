package bus_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

func TestCheckReply(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tenant, subject string
		want            bool
	}{
		{"default", "orders.done", true}, {"default", "turnpike.reply.x", true}, {"default", "_INBOX.x.y", true}, {"default", "turnpikes", true},
		{"acme", "turnpike.t.acme.reply.x", true},
		{"acme", "orders.done", false}, {"acme", "turnpike.reply.x", false}, {"acme", "turnpike.t.evil.reply.x", false}, {"acme", "turnpike.t.acme.reply.", false},
		{"default", "", false}, {"default", "orders.>", false}, {"default", "orders.*", false}, {"default", "orders..x", false}, {"default", ".x", false},
		{"default", "x.", false}, {"default", "a b", false}, {"default", "a\tb", false}, {"default", strings.Repeat("x", 1025), false},
		{"default", "$KV.b.k", false}, {"default", "$JS.ACK.x", false}, {"default", "$SYS.x", false},
		{"default", "turnpike", false}, {"default", "turnpike.turn.normal.0", false}, {"default", "turnpike.t.acme.reply.x", false},
	} {
		if err := bus.CheckReply("turnpike", tt.tenant, tt.subject); (err == nil) != tt.want || err != nil && !errors.Is(err, bus.ErrReplySubject) {
			t.Errorf("%s of %s: %v", tt.subject, tt.tenant, err)
		}
	}
}
