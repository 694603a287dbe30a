package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A gateway and a worker use a certificate of a private authority: all their endpoints use TLS, and a new
// certificate needs no restart and ends no stream.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := testbed.NewAuthority(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	install := func(name string) {
		t.Helper()
		cert, key := ca.Issue(name)
		for _, move := range [][2]string{{cert, certFile}, {key, keyFile}} {
			if err := os.Rename(move[0], move[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	install("first")
	operators, metrics := freeAddr(t), freeAddr(t)
	addr := freeAddr(t)
	env := []string{
		"TURNPIKE_NATS_URL=" + testbed.NATSServer(t).URL(), "TURNPIKE_ADDR=" + addr, "TURNPIKE_ADMIN_ADDR=" + operators, "TURNPIKE_METRICS_ADDR=" + metrics,
		"TURNPIKE_AUTH=keys", "TURNPIKE_TLS_CERT_FILE=" + certFile, "TURNPIKE_TLS_KEY_FILE=" + keyFile,
	}
	gateway := spawn(t, "gateway", env)
	worker := spawn(t, "worker", env)

	text, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	type answer struct {
		status      int
		header      http.Header
		body        string
		certificate string // its name
	}
	ask := func(url string) (answer, error) {
		fresh := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		resp, err := fresh.Get(url)
		if err != nil {
			return answer{}, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return answer{resp.StatusCode, resp.Header, string(body), resp.TLS.PeerCertificates[0].Subject.CommonName}, err
	}
	for url, want := range map[string]int{
		"https://" + addr + "/readyz":                                           200,
		"https://" + addr + "/debug/pprof/":                                     404,
		"https://" + operators + "/metrics":                                     200,
		"https://" + operators + "/debug/pprof/goroutine?debug=1":               200,
		"https://" + metrics + "/metrics":                                       200,
		"https://" + metrics + "/debug/pprof/heap":                              200,
		strings.Replace("https://"+addr+"/readyz", "127.0.0.1", "localhost", 1): 200,
	} {
		eventually(t, url, func() error {
			got, err := ask(url)
			if err == nil && (got.status != want || got.header.Get("Strict-Transport-Security") == "") {
				err = fmt.Errorf("%d with %v: %.200s", got.status, got.header, got.body)
			}
			return err
		})
	}

	built, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gateway", "worker", "turnpike"} {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(built, name), "--version").Output(); err != nil || !strings.HasPrefix(string(out), name+" ") {
			t.Errorf("%s --version: %v, %q", name, err, out)
		}
	}
	turnpike := func(env []string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(built, "turnpike"), args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return strings.TrimSpace(string(out)), err
	}
	key, err := turnpike(env, "keys", "create", "--bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	mine := append(slices.Clip(env), "TURNPIKE_TOKEN="+key, "TURNPIKE_URL=https://"+addr)
	trusting := append(slices.Clip(mine), "TURNPIKE_CA_FILE="+ca.File)
	if _, err := turnpike(mine, "ps"); err == nil || !strings.Contains(err.Error(), "TURNPIKE_CA_FILE") {
		t.Errorf("a client that does not know the authority: %v", err)
	}
	if _, err := turnpike(append(slices.Clip(trusting), "TURNPIKE_URL=http://"+addr), "ps"); err == nil || !strings.Contains(err.Error(), "write https://") {
		t.Errorf("a client without TLS: %v", err)
	}
	if _, err := turnpike(mine, "--ca-file", keyFile, "ps"); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("a key as the authority: %v", err)
	}
	out, err := turnpike(trusting, "run", file(t, "hello.yaml", "name: hello\nmodel: {provider: scripted, responses: [{text: hello there}]}\n"), "hi")
	if err != nil || !strings.Contains(out, "hello there") {
		t.Fatalf("turnpike run: %v\n%s", err, out)
	}

	// A stream is open while the certificate is replaced.
	c := api.New("https://"+addr, api.WithToken(key), api.WithRootCAs(pool))
	if _, err := c.PutAgent(t.Context(), "slow", []byte("model: {provider: scripted, responses: [{text: late, delay: 1h}]}")); err != nil {
		t.Fatal(err)
	}
	run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "slow", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	var lost, last string
	opened := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for e, err := range c.Follow(t.Context(), run.ID, 0, func(err error) {
			if err != nil {
				lost = err.Error()
			}
		}) {
			if err != nil {
				ended <- err
				return
			}
			if e.Seq == 1 {
				close(opened)
			}
			last = string(e.Type)
		}
		ended <- nil
	}()
	<-opened
	install("second")
	// Operators signal a replaced file with SIGHUP, which ends neither process and no stream.
	gateway.signal(syscall.SIGHUP)
	worker.signal(syscall.SIGHUP)
	eventually(t, "a handshake sees the new certificate", func() error {
		got, err := ask("https://" + addr + "/healthz")
		if err == nil && got.certificate != "second" {
			err = errors.New("it is still the first one")
		}
		return err
	})
	if _, err := c.Cancel(t.Context(), run.ID, "enough"); err != nil {
		t.Fatal(err)
	}
	if got, err := ask("https://" + metrics + "/readyz"); err != nil || got.status != http.StatusOK {
		t.Errorf("the worker after SIGHUP: %d, %v", got.status, err)
	}
	if err := <-ended; err != nil || last != "run.finished" || lost != "" {
		t.Errorf("the stream ended with %q after %v, connection lost: %q", last, err, lost)
	}
	eventually(t, "the log says that a certificate was loaded", func() error {
		if !strings.Contains(gateway.log(), "TLS certificate loaded") {
			return errors.New("it does not")
		}
		return nil
	})
}
