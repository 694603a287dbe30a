package toolkit

import (
	"cmp"
	"crypto/rand"

	"github.com/nats-io/nats.go"
)

// NewInbox returns a subject for the answers to one request to a service of a tenant. Unlike
// the client library's it says nothing of the connection's other inboxes: a service that is
// asked could answer there in the place of others. That of a tenant other than the default one
// lies below the tenant's root, so that its services need not be allowed to send anywhere else.
func NewInbox(nc *nats.Conn, prefix, tenant string) string {
	if root := Root(prefix, tenant); root != prefix {
		return root + ".inbox." + rand.Text()
	}
	return cmp.Or(nc.Opts.InboxPrefix, "_INBOX") + "." + rand.Text()
}

// NewDiscoveryInbox returns a subject for the answers to one question to all services of a
// tenant. Who only looks may hear it, and not the answers to calls.
func NewDiscoveryInbox(nc *nats.Conn, prefix, tenant string) string {
	if root := Root(prefix, tenant); root != prefix {
		return root + ".inbox.srv." + rand.Text()
	}
	return NewInbox(nc, prefix, tenant)
}
