package natsbus

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
)

// Connect opens a connection that reconnects forever, notices within ten seconds that a server
// stopped responding, and buffers nothing while disconnected: a publish fails at once instead of
// reaching the stream late. Only the first attempt to connect is not retried: if it fails, Connect
// returns an error, without the credentials in address. opts take precedence.
func Connect(address, name string, opts ...nats.Option) (*nats.Conn, error) {
	if err := natslogin.CheckURLs(address); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	opts = append([]nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(200*time.Millisecond, time.Second),
		nats.PingInterval(3 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ReconnectBufSize(-1),
		nats.FlusherTimeout(5 * time.Second),
		nats.ReconnectOnFlusherError(),
		nats.IgnoreAuthErrorAbort(), // rotated credentials may take a while to reach all servers
		nats.DrainTimeout(20 * time.Second),
	}, opts...)
	nc, err := nats.Connect(address, opts...)
	if _, ok := errors.AsType[*url.Error](err); ok {
		// The parser's error repeats the URL, which may contain a password.
		return nil, fmt.Errorf("connect to NATS: %w", natslogin.ErrURL)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

// Hosts returns the URLs of NATS servers without the credentials in them.
func Hosts(address string) string {
	servers := strings.Split(address, ",")
	for i, s := range servers {
		if at := strings.LastIndex(s, "@"); at >= 0 {
			servers[i] = s[at+1:]
		}
	}
	return strings.Join(servers, ",")
}

// JetStream returns a client for the JetStream of a domain; "" is that of the connected server.
func JetStream(nc *nats.Conn, domain string) (jetstream.JetStream, error) {
	if domain == "" {
		return jetstream.New(nc)
	}
	return jetstream.NewWithDomain(nc, domain)
}

// apiPrefix returns the subject prefix of requests to the JetStream of a domain.
func apiPrefix(domain string) string {
	if domain == "" {
		return jetstream.DefaultAPIPrefix
	}
	return "$JS." + domain + ".API."
}
