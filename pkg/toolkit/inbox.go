package toolkit

import (
	"cmp"
	"crypto/rand"

	"github.com/nats-io/nats.go"
)

// NewInbox returns a subject for the answers to one request. Unlike the client library's it
// says nothing of the connection's other inboxes: a service that is asked could answer there
// in the place of others.
func NewInbox(nc *nats.Conn) string { return cmp.Or(nc.Opts.InboxPrefix, "_INBOX") + "." + rand.Text() }
