package toolkit

import (
	"cmp"
	"crypto/rand"

	"github.com/nats-io/nats.go"
)

// NewInbox returns a new subject for the answers to one request to a service of a tenant. Unlike the client library's
// inbox, it does not reveal the connection's other inboxes, to which the service could send forged answers. The inbox
// of a tenant other than the default one is below the tenant's root, so that its services need no permission to publish
// elsewhere.
func NewInbox(nc *nats.Conn, prefix, tenant string) string {
	if root := Root(prefix, tenant); root != prefix {
		return root + ".inbox." + rand.Text()
	}
	return cmp.Or(nc.Opts.InboxPrefix, "_INBOX") + "." + rand.Text()
}

// NewDiscoveryInbox returns a new subject for the answers to one request to all services of a tenant. In a tenant other
// than the default one it is below .inbox.srv, so that a client that only discovers services need not subscribe to the
// answers to calls.
func NewDiscoveryInbox(nc *nats.Conn, prefix, tenant string) string {
	if root := Root(prefix, tenant); root != prefix {
		return root + ".inbox.srv." + rand.Text()
	}
	return NewInbox(nc, prefix, tenant)
}
