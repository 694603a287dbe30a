package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/turnpike-dev/turnpike/internal/tool/a2atool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// names answers DNS queries for hosts that an attacker controls: each query gets the next address of its name,
// repeating the last.
func names(t *testing.T, hosts map[string][]string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		asked := map[string]int{}
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			addresses := hosts[strings.TrimSuffix(q.Name.String(), ".")]
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			if len(addresses) == 0 {
				m.RCode = dnsmessage.RCodeNameError
			} else {
				key := q.Name.String() + q.Type.String()
				ip := netip.MustParseAddr(addresses[min(asked[key], len(addresses)-1)])
				asked[key]++
				head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
				switch {
				case ip.Is4() && q.Type == dnsmessage.TypeA:
					m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: ip.As4()}}}
				case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
					m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}}}
				}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// meeting records the result of the last request.
type meeting struct {
	http.RoundTripper
	err error
}

func (m *meeting) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	resp, m.err = m.RoundTripper.RoundTrip(r)
	return resp, m.err
}

func get(client *http.Client, target string) error {
	resp, err := client.Get(target)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func delegate(client *http.Client, target string) error {
	r, err := a2atool.New(client).Agent(target, "token").Call(context.Background(), tool.Call{Arguments: json.RawMessage(`{"task":"x"}`)})
	if err == nil && r.IsError {
		err = errors.New(r.Content)
	}
	return err
}

// An address that only the worker can reach is not dialled, in any notation, through any name, and after any
// redirect.
func TestGuard(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())

	g, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	g.resolver = names(t, map[string][]string{
		"inside.test": {"10.1.2.3"}, "inside6.test": {"fd00::1"}, "mapped.test": {"::ffff:127.0.0.1"}, "metadata.test": {"169.254.169.254"},
		"home.test": {"127.0.0.1"}, "home6.test": {"::1"}, "nat64.test": {"64:ff9b::a00:1"},
	})
	for _, target := range []string{
		// Loopback, in every notation that some resolver accepts.
		"https://127.0.0.1/", "https://127.0.0.1:" + port + "/", "https://localhost/", "https://localhost.:" + port + "/", "https://127.1/", "https://127.0.1/",
		"https://2130706433/", "https://0x7f000001/", "https://0x7f.0.0.1/", "https://0177.0.0.1/", "https://127.255.255.254/", "https://[::1]/", "https://[::1]:" + port + "/",
		"https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[0:0:0:0:0:ffff:7f00:0001]/", "https://[::127.0.0.1]/", "https://0.0.0.0/", "https://0/", "https://[::]/",
		// Networks of the site, its carrier and its cloud.
		"https://10.0.0.1/", "https://172.16.0.1/", "https://172.31.255.255/", "https://192.168.1.1/", "https://169.254.169.254/latest/meta-data/", "https://[fe80::1]/", "https://[fe80::1%25lo]/",
		"https://[fd00:ec2::254]/", "https://[fc00::1]/", "https://[fec0::1]/", "https://100.64.0.1/", "https://100.127.255.254/", "https://192.0.0.170/", "https://198.18.0.1/",
		"https://224.0.0.1/", "https://255.255.255.255/", "https://[ff02::1]/",
		// IPv4 inside IPv6.
		"https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[2001:0:7f00:1::]/", "https://[::ffff:169.254.169.254]/",
		"https://[::ffff:0:7f00:1]/", "https://[::ffff:0:a00:1]/", "https://[100:0:0:1::1]/", "https://[400::1]/", "https://[fec0::1]/", "https://[5f00::1]/", "https://[::7f00:1]/",
		// An empty user, and a user part that hides the host.
		"https://example.com@127.0.0.1/", "https://127.0.0.1:443@127.0.0.1/",
		// Names.
		"https://inside.test/", "https://inside6.test/", "https://mapped.test/", "https://metadata.test/", "https://home.test:" + port + "/", "https://home6.test/", "https://nat64.test/",
	} {
		// The guard applies to HTTP tools and to remote agents.
		for asker, ask := range map[string]func(*http.Client, string) error{"request": get, "agent": delegate} {
			client := g.Client()
			met := &meeting{RoundTripper: client.Transport}
			client.Transport = met
			if err := ask(client, target); err == nil {
				t.Errorf("%s: the %s was answered", target, asker)
			}
			// Unusual notations are unknown names, unless the system's resolver accepts them.
			if dns := (&net.DNSError{}); !errors.Is(met.err, errForbidden) && !errors.As(met.err, &dns) {
				t.Errorf("%s: %s: %v, want it refused", asker, target, met.err)
			}
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests came through", n)
	}

	for target, want := range map[string]error{
		"93.184.215.14:443": nil, "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443": nil,
		"93.184.215.14:22": errPort, "93.184.215.14:80": errPort, "not an address": errForbidden,
	} {
		if err := g.check("example.com:443", target); !errors.Is(err, want) {
			t.Errorf("check(%s) = %v, want %v", target, err, want)
		}
	}
	for _, scheme := range []string{"unix:///var/run/docker.sock", "file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/"} {
		if err := (toolspec.Request{URL: scheme}).Check(); err == nil {
			t.Errorf("the template %s is accepted", scheme)
		}
	}
}

// A name that resolves to an allowed address first and to a forbidden one later gets no second connection: each
// connection has one lookup, whose address is checked.
func TestRebinding(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	g, err := New([]string{"127.0.0.1/32"})
	if err != nil {
		t.Fatal(err)
	}
	g.resolver = names(t, map[string][]string{"rebind.test": {"127.0.0.1", "10.1.2.3"}})
	client := g.Client()
	transport := client.Transport.(*guarded).Transport //nolint:forcetypeassert // as Client creates it
	for n := range 3 {
		// The request bypasses the TLS check, which uses the URL: the address decides.
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://rebind.test:"+port+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true // another connection each time
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if n == 0 && err != nil || n > 0 && !errors.Is(err, errForbidden) {
			t.Errorf("request %d: %v", n+1, err)
		}
	}
	if n := reached.Load(); n != 1 {
		t.Errorf("%d requests passed, want the first only", n)
	}
}

// Tools do not use the environment's proxy, which would resolve names itself.
func TestNoProxy(t *testing.T) {
	var reached atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(proxy.Close)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	// The proxy's own address is allowed, so nothing else blocks the request.
	g, err := New([]string{"127.0.0.0/8", "nowhere.test:80"})
	if err != nil {
		t.Fatal(err)
	}
	g.resolver = names(t, nil)
	for _, target := range []string{"http://nowhere.test/", "https://nowhere.test/"} {
		if err := get(g.Client(), target); err == nil {
			t.Errorf("%s was answered", target)
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests went to the proxy", n)
	}
}

// A redirect is returned as the response, and its target is not requested.
func TestRedirect(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(inside.Close)
	outside := httptest.NewServer(http.RedirectHandler(inside.URL, http.StatusTemporaryRedirect))
	t.Cleanup(outside.Close)
	g, err := New([]string{outside.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := g.Client().Get(outside.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := delegate(g.Client(), outside.URL); err == nil {
		t.Error("a redirect counts as an agent's answer")
	}
	if err := delegate(g.Client(), inside.URL); err == nil || !strings.Contains(err.Error(), errPlain.Error()) {
		t.Errorf("an agent without TLS: %v", err)
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests inside", n)
	}
}

// Models and callers read errors of requests: they name neither the worker nor its DNS server.
func TestTextNamesNoServers(t *testing.T) {
	t.Parallel()
	lookup := func(err net.DNSError) error {
		err.Name, err.Server = "x.example", "10.0.0.2:53"
		return &net.OpError{Op: "dial", Net: "tcp", Err: &err}
	}
	at := func(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: port} }
	for want, err := range map[string]error{
		"dial tcp: lookup x.example: no such host":                          lookup(net.DNSError{Err: "no such host", IsNotFound: true}),
		"dial tcp: lookup x.example: the DNS server did not answer in time": lookup(net.DNSError{Err: "read udp 10.0.0.9:5->10.0.0.2:53: i/o timeout", IsTimeout: true}),
		"dial tcp: lookup x.example: the DNS server failed":                 lookup(net.DNSError{Err: "server misbehaving", IsTemporary: true}),
		"the call: read tcp 192.0.2.1:443: connection reset by peer":        fmt.Errorf("the call: %w", &net.OpError{Op: "read", Net: "tcp", Source: at(5), Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, Err: errors.New("connection reset by peer")}),
		"dial tcp 192.0.2.1:443: connect: connection refused":               &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, Err: errors.New("connect: connection refused")},
		"unexpected EOF": io.ErrUnexpectedEOF,
	} {
		if got := Text(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// An exception that no request could match is refused.
func TestExceptionsAreAddresses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"*", "example.com", "http://x", "https://example.com", "http://127.0.0.1:80", "example.com:http", "example.com:0", "example.com:70000", ":80", "10.0.0.0/40"} {
		if _, err := New([]string{bad}); err == nil {
			t.Errorf("the exception %q is accepted", bad)
		}
	}
	for _, good := range []string{"example.com:80", "127.0.0.1:8080", "[::1]:443", "10.1.0.0/16", "fd00::/8"} {
		if _, err := New([]string{good}); err != nil {
			t.Errorf("the exception %q: %v", good, err)
		}
	}
}
