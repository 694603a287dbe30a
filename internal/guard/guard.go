package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Guard refuses requests to addresses that only the worker can reach (loopback, private and link-local networks,
// metadata services), to ports other than 443, and without TLS. Hosts and networks given to New are exempt, but a
// network permits requests without TLS only to URLs with a literal IP address or localhost, not to names that resolve
// into it. Guard checks the dialled address, after name resolution, so a name cannot bypass it. Its client does not
// follow redirects.
type Guard struct {
	hosts    map[string]bool // "host:port" that may be reached all the same
	networks []netip.Prefix
	resolver *net.Resolver // nil is the system's
}

// New returns a guard. Each of allow is a "host:port", or a network such as 10.1.0.0/16 that requests may reach at any
// port; see [Guard] for requests without TLS.
func New(allow []string) (*Guard, error) {
	g := &Guard{hosts: map[string]bool{}}
	for _, a := range allow {
		if prefix, err := netip.ParsePrefix(a); err == nil {
			g.networks = append(g.networks, prefix)
			continue
		}
		host, port, err := net.SplitHostPort(a)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
			return nil, fmt.Errorf("%q is not a valid host:port or network: write one such as api.example.com:443 or 10.1.0.0/16", a)
		}
		g.hosts[a] = true
	}
	return g, nil
}

// Why a request is not made, and what to do about it.
var (
	errForbidden = errors.New("the address is not a public one" + exceptions)
	errPort      = errors.New("only port 443 is allowed" + exceptions)
	errPlain     = errors.New("requests without TLS are not allowed: write https" + exceptions)
)

const exceptions = ". To permit an exception, add its host:port to TURNPIKE_HTTP_ALLOW of the workers (in Go, standard.Config.HTTPAllow)"

// Refusal returns why a guard refused to connect, without what happened on the way to
// it, or nil if err is something else.
func Refusal(err error) error {
	for _, forbidden := range []error{errForbidden, errPort, errPlain} {
		if errors.Is(err, forbidden) {
			return forbidden
		}
	}
	return nil
}

// Text returns the text of an error of a request without the addresses of the worker and of its DNS server, for
// models and callers.
func Text(err error) string {
	text := err.Error()
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Source != nil && op.Addr != nil {
		text = strings.ReplaceAll(text, op.Source.String()+"->", "")
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		why := "the DNS server failed"
		switch {
		case lookup.IsNotFound:
			why = "no such host"
		case lookup.IsTimeout:
			why = "the DNS server did not answer in time"
		}
		text = strings.ReplaceAll(text, lookup.Error(), "lookup "+lookup.Name+": "+why)
	}
	return text
}

// reserved are networks without public services, in addition to those that netip
// recognizes.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carriers
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.31.196.0/24"),
	netip.MustParsePrefix("192.52.193.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("192.175.48.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // IPv4 behind IPv6
	netip.MustParsePrefix("2620:4f:8000::/48"),
	netip.MustParsePrefix("3fff::/20"),
}

// unicast has all IPv6 addresses that IANA has given to networks. Translated IPv4 addresses, such as those in
// 64:ff9b::/96 and ::ffff:0:0:0/96, are outside.
var unicast = netip.MustParsePrefix("2000::/3")

func public(ip netip.Addr) bool {
	ip = ip.Unmap()
	if ip.Zone() != "" || !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	if ip.Is6() && !unicast.Contains(ip) {
		return false
	}
	for _, p := range reserved {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// check returns nil if a connection for hostport may go to address.
func (g *Guard) check(hostport, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return errForbidden
	}
	if g.hosts[hostport] {
		return nil
	}
	for _, n := range g.networks {
		if n.Contains(at.Addr().Unmap()) {
			return nil
		}
	}
	switch {
	case !public(at.Addr()):
		return errForbidden
	case at.Port() != 443:
		return errPort
	default:
		return nil
	}
}

// plain reports whether requests to a host may go without TLS.
func (g *Guard) plain(hostport string) bool {
	if g.hosts[hostport] {
		return true
	}
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return false
	}
	if host == "localhost" {
		host = "127.0.0.1" // to which it is held when it is dialled
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return false
	}
	for _, n := range g.networks {
		if n.Contains(ip.Unmap()) {
			return true
		}
	}
	return false
}

// Client returns an HTTP client that checks every connection, uses no proxy of the environment and follows no redirect:
// a request may contain secrets for one host only. It sends requests without TLS only where an exception of New permits
// them.
func (g *Guard) Client() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &guarded{g, &http.Transport{
			DialContext: func(ctx context.Context, network, hostport string) (net.Conn, error) {
				dialer := net.Dialer{Timeout: 10 * time.Second, Resolver: g.resolver, Control: func(_, address string, _ syscall.RawConn) error {
					return g.check(hostport, address)
				}}
				return dialer.DialContext(ctx, network, hostport)
			},
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 16, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10,
		}},
	}
}

// Public returns the client of a guard without exceptions.
func Public() *http.Client { return (&Guard{}).Client() }

// guarded makes requests with TLS, and others where the guard allows them.
type guarded struct {
	guard *Guard
	*http.Transport
}

func (t *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !t.guard.plain(HostPort(r.URL)) {
		return nil, errPlain
	}
	return t.Transport.RoundTrip(r)
}

// HostPort returns the "host:port" of a URL, with the port of its scheme if it has none:
// what New takes.
func HostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return u.Host + map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
}
