package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/access"
)

// invited reports whether a request asks for a host that this gateway may be known by: that of
// Config.PublicURL, too. Beyond loopback any name is fine where callers say who they are,
// unless Config.Hosts names some: a page has no token to send.
func (g *Gateway) invited(r *http.Request) bool {
	_, byRequest := g.cfg.Auth.(access.RequestAuthenticator) // it may let in a page without a token
	if g.cfg.Auth != nil && !byRequest && len(g.cfg.Hosts) == 0 && beyondLoopback(r) {
		return true
	}
	if public, err := url.Parse(g.cfg.PublicURL); err == nil && public.Hostname() != "" && strings.EqualFold(public.Hostname(), hostOf(r)) {
		return true
	}
	return KnownHost(r, g.cfg.Hosts)
}

// KnownHost reports whether a request asks for a host that a process may be known by which
// has the given names.
//
// A page of another site can let its own name point to this machine, and to its browser
// it is then of one origin with the process (DNS rebinding). So the name must be one that
// nobody else can give out: an address, localhost, or one of the names, and beyond
// loopback also one without a dot, as a cluster has for its services.
func KnownHost(r *http.Request, names []string) bool {
	if local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); local == nil || r.Host == "" {
		return true
	}
	host := hostOf(r)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	if beyondLoopback(r) && !strings.Contains(host, ".") {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.ContainsFunc(names, func(h string) bool { return strings.EqualFold(h, host) })
}

// hostOf is the name that a request asks for, without a port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// beyondLoopback reports whether the request came to an address that other machines reach.
func beyondLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && !local.IP.IsLoopback()
}
