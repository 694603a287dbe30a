package mcptool

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// parrotMode makes the test binary a parrot of the secret in this variable.
const parrotMode = "MCPTOOL_PARROT"

// core is in the secret and is never escaped.
const core = "c4n4ryQ7x9Zk2vTb"

// Secrets that a server has received do not appear in anything shown to models and people, or stored.
func TestSecretsDoNotComeBack(t *testing.T) {
	t.Parallel()
	const key = core + `+x/d&"el%<k>=`
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	served := func(as func(*mcp.Server) *mcp.Server, stateless bool) Server {
		h := httptest.NewServer(mcp.NewStreamableHTTPHandler(
			func(r *http.Request) *mcp.Server { return as(testbed.Parrot(r.Header.Get("X-Key"))) }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
		t.Cleanup(h.Close)
		return Server{URL: h.URL, Headers: map[string]string{"X-Key": "secret://KEY"}}
	}
	resolve := func(string, string) (string, error) { return key, nil }
	for name, s := range map[string]Server{
		"stdio":      {Command: []string{self}, Env: map[string]string{parrotMode: "secret://KEY"}},
		"http":       served(func(s *mcp.Server) *mcp.Server { return s }, true),
		"older http": served(old, false),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := caller(t, Config{})
			l, err := c.List(t.Context(), "", s, resolve)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]string{"listing": plainly(t, l)}
			for _, name := range testbed.ParrotTools() {
				if name == "crashes" && s.URL != "" {
					continue
				}
				var mu sync.Mutex
				var progress []string
				r := try(t, c.Tool(s, name, nil, l, resolve), tool.Call{Idempotent: true, Progress: func(text string) {
					mu.Lock()
					defer mu.Unlock()
					progress = append(progress, text)
				}})
				for i := range r.Images {
					b, _ := base64.StdEncoding.DecodeString(r.Images[i].Data)
					r.Images[i].URL = string(b) // to be searched as well
				}
				for i := range r.Files {
					b, _ := base64.StdEncoding.DecodeString(r.Files[i].Data)
					r.Files[i].URL = string(b)
				}
				mu.Lock()
				found[name] = plainly(t, r, progress)
				mu.Unlock()
				if r.Ask != nil {
					found[name] += r.Ask.Question + string(r.Ask.State)
				}
			}
			for where, text := range found {
				if strings.Contains(text, core) {
					t.Errorf("%s has the secret in it: %s", where, text)
				}
				want := secret.Redacted
				switch {
				case name == "older http":
				case where == "keeps":
					want = "must not be stored"
				case where == "asks_in_between":
					want = "cannot be sent" // this one can no longer be asked in that way
				}
				if !strings.Contains(text, want) {
					t.Errorf("%s = %s, want %q in it", where, text, want)
				}
			}
		})
	}
}

// plainly returns values both encoded and printed.
func plainly(t *testing.T, values ...any) string {
	t.Helper()
	b, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %v", b, values)
}

// Long output of a program is redacted before it is cut, because a partial secret could not be recognized.
func TestTailRedactsBeforeItCuts(t *testing.T) {
	t.Parallel()
	w := &tail{secrets: secret.New(core)}
	for range 5 * maxComplaint {
		for _, piece := range []string{core[:5], core[5:], "."} {
			_, _ = w.Write([]byte(piece))
		}
	}
	left := strings.ReplaceAll(w.String(), secret.Redacted+".", "")
	if !strings.HasSuffix("."+secret.Redacted+".", left) || len(w.String()) > maxComplaint {
		t.Errorf("tail = %d bytes, with %q", len(w.String()), left)
	}
}

// What a program wrote before it ended explains a failure, but not the end of a call that its caller gave up.
func TestComplaintOfAnEndedProgram(t *testing.T) {
	t.Parallel()
	p := &process{own: &confine.Process{}, said: &tail{secrets: secret.New()}, done: make(chan struct{})}
	close(p.done)
	if err := (&session{process: p}).explainText(io.EOF); !errors.Is(err, io.EOF) || err.Error() != "EOF" {
		t.Errorf("a program that wrote nothing: %v", err)
	}
	_, _ = p.said.Write([]byte("no disk"))
	for cause, explained := range map[error]bool{io.EOF: true, context.Canceled: false, context.DeadlineExceeded: false} {
		err := (&session{process: p}).explainText(fmt.Errorf("call: %w", cause))
		if !errors.Is(err, cause) || strings.Contains(err.Error(), "no disk") != explained {
			t.Errorf("%v becomes %q", cause, err)
		}
	}
}
