package docs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

// operator follows a page of commands in one shell, in an empty folder.
type operator struct {
	*session

	t     *testing.T
	shell io.WriteCloser
	ended chan error

	mu   sync.Mutex
	said bytes.Buffer
}

// Write receives the shell's output.
func (o *operator) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.Write(p)
}

func (o *operator) heard() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.String()
}

func newOperator(t *testing.T, env ...string) *operator {
	t.Helper()
	s := &session{dir: t.TempDir(), bin: t.TempDir()}
	for name, pkg := range map[string]string{"turnpike": "./cmd/turnpike", "gateway": "./cmd/gateway", "worker": "./cmd/worker", "nats-server": "github.com/nats-io/nats-server/v2"} {
		if err := os.Symlink(build(t, pkg), filepath.Join(s.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasPrefix(name, "TURNPIKE_") && name != "PATH" {
			s.env = append(s.env, e)
		}
	}
	s.env = append(s.env, "PATH="+s.bin+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+t.TempDir())
	s.env = append(s.env, env...)
	commands, shell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer commands.Close()
	o := &operator{session: s, t: t, shell: shell, ended: make(chan error, 1)}
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "/dev/fd/3")
	cmd.Dir, cmd.Env, cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = s.dir, s.env, []*os.File{commands}, o, o
	if err := s.start(t, cmd); err != nil {
		t.Fatal(err)
	}
	go func() { o.ended <- cmd.Wait() }() // the group is killed when the test ends
	return o
}

// types enters commands as written on a page.
func (o *operator) types(commands string) {
	o.t.Helper()
	lines := strings.Split(commands, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "$ ")
	}
	if _, err := io.WriteString(o.shell, strings.Join(lines, "\n")+"\n"); err != nil {
		o.t.Fatalf("%v, after:\n%s", err, o.heard())
	}
}

// sees polls until ok returns nil.
func (o *operator) sees(what string, ok func() error) {
	o.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(2 * time.Minute)
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case end := <-o.ended:
			o.t.Fatalf("%s: the shell ended with %v, after:\n%s", what, end, o.heard())
		case <-limit:
			o.t.Fatalf("%s: %v, after:\n%s", what, err, o.heard())
		}
	}
}

// console returns the command blocks below a heading of a page.
func console(t *testing.T, source, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, source))
	if err != nil {
		t.Fatal(err)
	}
	_, below, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", source, heading)
	}
	below, _, _ = strings.Cut(below, "\n## ")
	blocks, err := split(source, below)
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, b := range blocks {
		if b.info == "console" {
			commands = append(commands, b.text)
		}
	}
	return commands
}

// An operator follows the page literally, on other ports: certificates of a private authority, NATS and Redis
// with TLS and users, a gateway and a worker. A new certificate is used without a restart, and users log in
// through an OpenID provider.
func TestSecureDeployment(t *testing.T) {
	t.Parallel()
	const source = "docs/how-to/secure-a-deployment.md"
	var ports [4]string
	for i := range ports {
		ports[i] = freePort(t)
	}
	here := strings.NewReplacer("4222", ports[0], "6379", ports[1], "7070", ports[2])
	o := newOperator(t, "TURNPIKE_ADDR=127.0.0.1:"+ports[2])
	blocks := console(t, source, "A deployment on one machine")
	if len(blocks) != 4 {
		t.Fatalf("%d command blocks, want certificates, servers, Turnpike, and users", len(blocks))
	}
	certificates, servers, processes, use := blocks[0], blocks[1], blocks[2], blocks[3]
	o.types(certificates)
	o.types(here.Replace(servers))
	for _, port := range ports[:2] {
		o.sees("a server at "+port, func() error {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
	o.types(here.Replace(processes))
	browser := &http.Client{}
	o.sees("the gateway", func() error {
		text, err := os.ReadFile(filepath.Join(o.dir, "tls/ca.crt"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		browser.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
		_, err = ask(browser, "https://localhost:"+ports[2]+"/readyz", nil)
		return err
	})
	o.types(here.Replace(use))
	o.sees("the run", func() error {
		if said := o.heard(); !strings.Contains(said, "hello there") || !strings.Contains(said, "gateway: https://localhost:"+ports[2]) {
			return errors.New("there is no answer")
		}
		return nil
	})
	for line := range strings.Lines(o.heard()) {
		old := strings.Contains(line, "prices") // half a year after the build
		if (strings.HasPrefix(line, "warn ") || strings.HasPrefix(line, "fail ")) && !old {
			t.Errorf("doctor objects:\n%s", line)
		}
	}

	// The same commands create another certificate.
	before, err := ask(browser, "https://localhost:"+ports[2]+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	o.types(strings.Join(strings.SplitAfter(certificates, "\n")[3:8], ""))
	o.sees("the new certificate", func() error {
		after, err := ask(browser, "https://localhost:"+ports[2]+"/readyz", nil)
		if err == nil && after.serial == before.serial {
			err = errors.New("the certificate is still the previous one")
		}
		return err
	})

	// The gateway has the settings of the two sections about users. The provider of this test sends no such
	// claims.
	provider := o.provider("https://localhost:" + ports[3] + "/auth/callback")
	secret := filepath.Join(o.dir, "oidc")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	people := strings.NewReplacer("https://login.example.com", provider, "https://turnpike.example.com", "https://localhost:"+ports[3], "/run/secrets/oidc", secret,
		"claims.org", `"acme"`, "claims.groups", `["submitter", claims.sub]`)
	for _, heading := range []string{"OpenID Connect", "The page"} {
		for _, block := range console(t, source, heading) {
			o.types(people.Replace(block))
		}
	}
	o.types("(set -a; . secrets/gateway/env; TURNPIKE_ADDR=127.0.0.1:" + ports[3] + " gateway) &")
	if browser.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	at := "https://localhost:" + ports[3]
	o.sees("the form of the provider", func() error {
		form, err := ask(browser, at+"/auth/login", nil)
		if err != nil {
			return err
		}
		_, err = ask(browser, provider+"/login/username", url.Values{"username": {"test-user2"}, "password": {"verysecure"}, "id": {form.at.Query().Get("authRequestID")}})
		return err
	})
	who, err := ask(browser, at+"/v1/whoami", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(who.text, `"tenant":"acme","roles":["viewer","submitter"]`) {
		t.Errorf("the user who logs in through the provider is %s", who.text)
	}
	if err := o.shell.Close(); err != nil {
		t.Fatal(err)
	}
}

// page is a response to a browser.
type page struct {
	at     *url.URL
	text   string
	serial string // of the certificate
}

// ask sends a request. A response other than 200 is an error.
func ask(browser *http.Client, address string, form url.Values) (page, error) {
	send := func() (*http.Response, error) { return browser.Get(address) }
	if form != nil {
		send = func() (*http.Response, error) { return browser.PostForm(address, form) }
	}
	resp, err := send()
	if err != nil {
		return page{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	p := page{at: resp.Request.URL, text: string(text)}
	if resp.TLS != nil {
		p.serial = resp.TLS.PeerCertificates[0].SerialNumber.String()
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", p.at, resp.Status, text)
	}
	return p, err
}

// provider starts an OpenID provider that redirects users to callback.
func (o *operator) provider(callback string) (issuer string) {
	o.t.Helper()
	var h http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }))
	o.t.Cleanup(server.Close)
	issuer = strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	storage.RegisterClients(storage.WebClient("turnpike", "secret", callback))
	h = exampleop.SetupServer(issuer, storage.NewStorage(storage.NewUserStore(issuer)), slog.New(slog.DiscardHandler), false)
	return issuer
}
