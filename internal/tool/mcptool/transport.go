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
	// maxMessage is the maximum size of one message of a server, in bytes. The message with the result of a call may
	// have twice its max_result, for the JSON, and envelope, for images, but no more than maxMessage.
	maxMessage = 9 << 20
	envelope   = 1 << 20

	// maxReceived and maxLines are the maximum size and the maximum number of lines of the messages that a server sends
	// during one call and until the next. An event has two or three lines, a message of a program has one.
	maxReceived = 2 * maxMessage
	maxLines    = 30_000

	// maxComplaint is the number of bytes at the end of a program's standard error that are kept for error messages.
	maxComplaint = 2 << 10

	// goodbye is the time that a program has to exit before it is killed.
	goodbye = 2 * time.Second
)

// transport returns the transport to a server; for a program, it starts that.
func (c *Caller) transport(t target, s *session) (mcp.Transport, error) {
	if t.URL != "" {
		client := *c.client
		client.Transport = &headers{t.Headers, client.Transport, s}
		return &mcp.StreamableClientTransport{Endpoint: t.URL, HTTPClient: &client, MaxEventSize: maxMessage}, nil
	}
	if !slices.Contains(c.cfg.Commands, t.Command[0]) && !slices.Contains(c.cfg.Commands, "*") {
		return nil, fault("this worker may not start %q: add it to TURNPIKE_MCP_COMMANDS of the workers (in Go, MCPCommands), or start turnpike dev with --allow-commands", t.Command[0])
	}
	var err error
	if s.process, err = c.start(t); err != nil {
		return nil, err
	}
	return &mcp.IOTransport{Reader: &lines{ReadCloser: s.process.out, s: s}, Writer: s.process.in, MaxLineLength: maxMessage}, nil
}

// headers adds the headers of a definition to requests, and limits the size of responses.
type headers struct {
	set  map[string]string
	next http.RoundTripper
	s    *session
}

// messageLimit returns the current maximum size of a message, in bytes.
func (s *session) messageLimit() int64 {
	if n := s.limit.Load(); n > 0 {
		return n
	}
	return maxMessage
}

// errFlood ends a call, and the session, of a server that does not stop sending notifications.
var errFlood = fmt.Errorf("the server sent more than %d MiB or %d lines during one call: configure it to send fewer notifications", maxReceived>>20, maxLines)

// receive counts what the server sends, and ends the call in progress when that is too much.
func (s *session) receive(bytes, lines int) error {
	if s.received.Add(int64(bytes)) <= maxReceived && s.lines.Add(int64(lines)) <= maxLines {
		return nil
	}
	s.spent.Store(true)
	s.flooded.Store(true)
	if c := s.current(); c != nil {
		c.stop()
	}
	return errFlood
}

// lines is a reader that fails on a line longer than the maximum size of a message, and on too many lines.
type lines struct {
	io.ReadCloser

	s    *session
	line int64 // bytes of the current line so far
}

func (l *lines) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	ended := 0
	for rest := p[:n]; ; ended++ {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			l.line += int64(len(rest))
			break
		}
		l.line, rest = 0, rest[end+1:]
	}
	if flood := l.s.receive(n, ended); flood != nil {
		return 0, flood
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
	// An event stream has no end; the size of each of its events is limited.
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = &lines{ReadCloser: resp.Body, s: h.s}
	} else {
		resp.Body = tool.LimitBody(resp.Body, h.s.messageLimit())
	}
	return resp, nil
}

// process is a program that communicates over MCP.
type process struct {
	cmd  *exec.Cmd
	own  *confine.Process
	in   io.WriteCloser
	out  io.ReadCloser
	said *tail
	done chan struct{} // closed when the program has ended

	once sync.Once
}

// start starts a program, confined as Config.Confinement does it. The worker's variables contain secrets, so the
// program gets only those that programs generally need, and those of the definition.
func (c *Caller) start(t target) (*process, error) {
	cmd := exec.Command(t.Command[0], t.Command[1:]...) //nolint:gosec // the worker's configuration allows the program
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
	// Use our own pipe: the one of the command would be closed when the program ends, before it is read to its end.
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
	// This ends when the program has ended, or when stop has killed it.
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

// stop ends the program as the protocol requires, by closing its input, and kills it if it does not end within goodbye,
// together with the processes that it has started.
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
		// The group exists as long as it has members.
		group(syscall.SIGKILL)
		<-p.done
		p.own.Close()
		_ = p.out.Close()
	})
}

// tail keeps the end of a program's output. It redacts secrets as they arrive, because it could not recognize a secret
// that is cut at the beginning of the tail.
type tail struct {
	secrets *secret.Redactor

	mu      sync.Mutex
	end     string
	pending string // may be the beginning of a secret
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

// complaintError is an error preceded by the program's output.
type complaintError struct {
	error

	said string
}

func (e *complaintError) Error() string {
	return fmt.Sprintf("%v; the program wrote to standard error: %s", e.error, e.said)
}
func (e *complaintError) Unwrap() error { return e.error }

// explainText returns err with what to do about it.
func (s *session) explainText(err error) error {
	if why := guard.Refusal(err); why != nil {
		return why
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the text of the url.Error contains the URL
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

// ended reports whether the program has ended or ends within a moment.
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
	return fmt.Sprintf("MCP server %q failed: %s. The call may have had an effect: check that before you repeat it", server, guard.Text(s.explainText(err)))
}
