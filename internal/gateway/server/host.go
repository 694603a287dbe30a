package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)

// CheckHosts returns an error if one of the names that KnownHost may allow is the host of no request.
func CheckHosts(names []string) error {
	for _, name := range names {
		if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err != nil && !hostName.MatchString(name) {
			return fmt.Errorf("TURNPIKE_HOSTS (in Go, GatewayOptions.Hosts) has %.100q: write each name as turnpike.example.com, without https://, a port, a path or *", name)
		}
	}
	return nil
}

// allowsHost reports whether clients may address the server by the host in a request.
func (s *Server) allowsHost(r *http.Request) bool {
	if s.cfg.AnyHost && len(s.cfg.Hosts) == 0 && beyondLoopback(r) {
		return true
	}
	if public, err := url.Parse(s.cfg.PublicURL); err == nil && public.Hostname() != "" && strings.EqualFold(public.Hostname(), hostOf(r)) {
		return true
	}
	return KnownHost(r, s.cfg.Hosts)
}

// KnownHost reports whether the host in a request is safe: an IP address, localhost or a name below it, or one of
// names, ignoring case. If the request arrived at an address other than loopback, a name without a dot is safe too,
// because services in a cluster have such names. A request without a host, or that did not arrive over TCP, is safe.
//
// Any other name may belong to an attacker: a web page can make its own name resolve to this machine, and the browser
// then treats this process as the same origin as the page (DNS rebinding).
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

// onThisMachine reports whether a host, without a port, is localhost, a name below it or a loopback address.
func onThisMachine(host string) bool {
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && at.IsLoopback()
}

// hostOf returns the host in a request in lower case, without a port and without a dot at its end.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// beyondLoopback reports whether a request arrived at an address that other machines can reach.
func beyondLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && !local.IP.IsLoopback()
}
