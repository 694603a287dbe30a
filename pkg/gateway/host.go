package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// invited reports whether a request asks for a host that this gateway may be known by.
//
// A page of another site can let its own name point to this machine, and to its browser
// it is then of one origin with the API (DNS rebinding). So the name must be one that
// nobody else can give out: an address, localhost, that of Config.PublicURL, or one of
// Config.Hosts, and beyond
// loopback also one without a dot, as a cluster has for its services. Beyond loopback any
// name is fine where callers say who they are, unless Config.Hosts names some: a page has
// no token to send.
func (g *Gateway) invited(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || r.Host == "" {
		return true
	}
	beyond := !local.IP.IsLoopback()
	if beyond && g.cfg.Auth != nil && len(g.cfg.Hosts) == 0 {
		return true
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	if beyond && !strings.Contains(host, ".") {
		return true
	}
	if public, err := url.Parse(g.cfg.PublicURL); err == nil && host != "" && strings.EqualFold(public.Hostname(), host) {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.ContainsFunc(g.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}
