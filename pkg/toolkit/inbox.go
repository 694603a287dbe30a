package toolkit

import (
	"cmp"
	"crypto/rand"

	"github.com/nats-io/nats.go"
)

// NewInbox returns a subject for the answers to one request to a service of a tenant. Unlike the
// client library's inbox it does not reveal the connection's other inboxes, to which the service
// could otherwise send forged answers. If the tenant is not the default one, the inbox is below the
// tenant's root, so that its services need no permission to publish elsewhere.
func NewInbox(nc *nats.Conn, prefix, tenant string) string {
	if root := Root(prefix, tenant); root != prefix {
		return root + ".inbox." + rand.Text()
	}
	return cmp.Or(nc.Opts.InboxPrefix, "_INBOX") + "." + rand.Text()
}

// NewDiscoveryInbox returns a subject for the answers to one request to all services of a tenant. A
// client that only discovers services may subscribe to it, and not to the answers to calls.
func NewDiscoveryInbox(nc *nats.Conn, prefix, tenant string) string {
	if root := Root(prefix, tenant); root != prefix {
		return root + ".inbox.srv." + rand.Text()
	}
	return NewInbox(nc, prefix, tenant)
}
