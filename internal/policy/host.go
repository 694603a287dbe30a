package policy

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// CheckPattern returns an error if a pattern of hosts is invalid. Valid patterns are a name or an address, with or
// without a port; a network (10.1.0.0/16); *.example.com, with or without a port, for every name below example.com; and
// * for everything. CheckPattern does not check whether a name is one of DNS, or a port a number.
func CheckPattern(pattern string) error {
	if _, err := netip.ParsePrefix(pattern); err == nil || pattern == "*" {
		return nil
	}
	host, _ := split(strings.TrimPrefix(pattern, "*."))
	if host == "" || strings.ContainsAny(host, "/@*?# \t\r\n") || strings.Contains(pattern, "://") {
		return fmt.Errorf("%q is not a pattern of hosts: write one such as example.com, *.example.com, example.com:8443, 10.1.0.0/16 or *", pattern)
	}
	return nil
}

// MatchHost reports whether a pattern that passes CheckPattern matches a host, which is "host:port" or only a host. The
// case of letters and a dot at the end of a host do not matter. A pattern without a port matches all ports; one with a
// port does not match a host without it. A network matches only addresses: MatchHost resolves no names. No pattern, not
// even *, matches an empty host.
func MatchHost(pattern, hostport string) bool {
	host, port := split(hostport)
	if host == "" {
		return false
	}
	if pattern == "*" {
		return true
	}
	if network, err := netip.ParsePrefix(pattern); err == nil {
		ip, err := netip.ParseAddr(host)
		return err == nil && network.Contains(ip.Unmap())
	}
	wanted, only := split(pattern)
	if only != "" && only != port {
		return false
	}
	if parent, ok := strings.CutPrefix(wanted, "*."); ok {
		below, ok := strings.CutSuffix(host, "."+parent)
		return ok && below != ""
	}
	return host == wanted
}

// split returns the host and the port of a "host:port". The host is in lower case, without brackets and a dot at its
// end.
func split(hostport string) (host, port string) {
	host = hostport
	if h, p, err := net.SplitHostPort(hostport); err == nil {
		host, port = h, p
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), "."), port
}
