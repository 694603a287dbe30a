package mcptool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// maxMessage bounds one message of a server, in bytes. That of a call has twice its
	// max_result, for JSON, and envelope, which has place for images.
	maxMessage = 9 << 20
	envelope   = 1 << 20

	// maxComplaint is how much of a program's standard error is kept, for errors.
	maxComplaint = 2 << 10

	// goodbye is the time for a program to end by itself.
	goodbye = 2 * time.Second
)

// transport returns the way to a server.
func (c *Caller) transport(t target, s *session) (mcp.Transport, error) {
	if t.URL != "" {
		client := *c.client
		client.Transport = &headers{t.Headers, client.Transport, s}
		return &mcp.StreamableClientTransport{Endpoint: t.URL, HTTPClient: &client, MaxEventSize: maxMessage}, nil
	}
	if !slices.Contains(c.cfg.Commands, t.Command[0]) && !slices.Contains(c.cfg.Commands, "*") {
		return nil, fmt.Errorf("this worker may not start %q: add it to TURNPIKE_MCP_COMMANDS of the workers, or start turnpike dev with --allow-commands", t.Command[0])
	}
	var err error
	if s.process, err = c.start(t); err != nil {
		return nil, err
	}
	return &mcp.IOTransport{Reader: &lines{ReadCloser: s.process.out, s: s}, Writer: s.process.in, MaxLineLength: maxMessage}, nil
}

// headers adds an agent's headers to requests, and bounds the answers.
type headers struct {
	set  map[string]string
	next http.RoundTripper
	s    *session
}

// messageLimit returns the bytes that a message may have now.
func (s *session) messageLimit() int64 {
	if n := s.limit.Load(); n > 0 {
		return n
	}
	return maxMessage
}

// lines fails on a line that exceeds the maximum message size.
type lines struct {
	io.ReadCloser

	s    *session
	line int64 // bytes so far
}

func (l *lines) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	for rest := p[:n]; ; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			l.line += int64(len(rest))
			break
		}
		l.line, rest = 0, rest[end+1:]
	}
	if limit := l.s.messageLimit(); l.line > limit {
		return 0, &tool.TooLargeError{Limit: limit}
	}
	return n, err
}

func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h.set {
		r.Header.Set(name, value)
	}
	resp, err := h.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Streams have no end; each of their events is bounded.
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = &lines{ReadCloser: resp.Body, s: h.s}
	} else {
		resp.Body = tool.LimitBody(resp.Body, h.s.messageLimit())
	}
	return resp, nil
}

// process is a program that speaks MCP.
type process struct {
	cmd  *exec.Cmd
	own  *confine.Process
	in   io.WriteCloser
	out  io.ReadCloser
	said *tail
	done chan struct{} // closed when the program has ended

	once sync.Once
}

// start starts a program, confined. The worker's environment contains secrets, so the
// program gets only the variables that programs need.
func (c *Caller) start(t target) (*process, error) {
	cmd := exec.Command(t.Command[0], t.Command[1:]...) //nolint:gosec // the worker's configuration admits it
	for _, name := range []string{"PATH", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	for name, value := range t.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	p := &process{cmd: cmd, said: &tail{secrets: t.secrets}, done: make(chan struct{})}
	cmd.Stderr = p.said
	cmd.WaitDelay = goodbye
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", t.Command[0], err)
	}
	// A pipe of our own: that of the command would be closed before it is read to its
	// end when the program ends.
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", t.Command[0], err)
	}
	p.out, cmd.Stdout = reader, writer
	p.own, err = c.cfg.Confinement.Start(t.Command[0], cmd)
	_ = writer.Close()
	if err != nil {
		_ = reader.Close()
		return nil, fmt.Errorf("start %s: %w", t.Command[0], err)
	}
	// It ends when the program has ended, or been killed by stop.
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	return p, nil
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the program as the protocol asks for, by the end of its input, and if it
// does not follow by force. Nothing that it has started is left.
func (p *process) stop() {
	p.once.Do(func() {
		_ = p.in.Close()
		group := func(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }
		for _, end := range []func(){func() { group(syscall.SIGTERM) }, p.own.Kill, func() { group(syscall.SIGKILL) }} {
			t := time.NewTimer(goodbye)
			select {
			case <-p.done:
			case <-t.C:
				end()
			}
			t.Stop()
		}
		// The group outlives its leader while it has members.
		group(syscall.SIGKILL)
		<-p.done
		p.own.Close()
		_ = p.out.Close()
	})
}

// tail keeps the end of a program's output. It redacts secrets as they arrive: it could
// not recognize one that the beginning of the tail cuts in two.
type tail struct {
	secrets *secret.Redactor

	mu      sync.Mutex
	end     string
	pending string // perhaps the beginning of a secret
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown, pending := t.secrets.Cut(t.pending + string(b))
	t.end, t.pending = t.end+shown, pending
	if len(t.end) > maxComplaint {
		t.end = strings.Clone(t.end[len(t.end)-maxComplaint:])
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(t.end+t.pending, "?"))
}

// complaintError is an error with the program's output before it.
type complaintError struct {
	error

	said string
}

func (e *complaintError) Error() string {
	return fmt.Sprintf("%v; the program wrote to standard error: %s", e.error, e.said)
}
func (e *complaintError) Unwrap() error { return e.error }

// explainText adds the remedy to err.
func (s *session) explainText(err error) error {
	if why := guard.Refusal(err); why != nil {
		return why
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // its text has the whole URL in it
	}
	if s.process != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && s.process.ended() {
		if why := s.process.own.Err(); why != nil {
			return fmt.Errorf("%w: %w", why, err)
		}
		if said := s.process.said.String(); said != "" {
			return &complaintError{err, said}
		}
	}
	return err
}

// ended reports whether the program has ended or is just about to.
func (p *process) ended() bool {
	t := time.NewTimer(goodbye)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

func (s *session) explain(server Server, err error) string {
	return fmt.Sprintf("MCP server %q failed: %v", server, s.explainText(err))
}
