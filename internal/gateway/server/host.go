package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// allowsHost reports whether a request names a host by which clients may address the server.
func (s *Server) allowsHost(r *http.Request) bool {
	if s.cfg.AnyHost && len(s.cfg.Hosts) == 0 && beyondLoopback(r) {
		return true
	}
	if public, err := url.Parse(s.cfg.PublicURL); err == nil && public.Hostname() != "" && strings.EqualFold(public.Hostname(), hostOf(r)) {
		return true
	}
	return KnownHost(r, s.cfg.Hosts)
}

// KnownHost reports whether the host that a request names is safe: an IP address, localhost or a name below
// it, or one of names. If the request came to an address other than loopback, a name without a dot is safe
// too, as services of a cluster have. A request without a host, or that did not come over TCP, is safe.
//
// Any other name may belong to an attacker: a web page can have its own name resolve to this machine, and the
// browser then treats this process as the same origin as the page (DNS rebinding).
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

// hostOf returns the host that a request names, without a port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// beyondLoopback reports whether a request came to an address that other machines reach.
func beyondLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && !local.IP.IsLoopback()
}
