package mcptool

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Server says where an MCP server is.
type Server = toolspec.Server

// Config of a Caller. The zero value of each field gives its default.
type Config struct {
	// Commands are the programs that may be started, as in the first word of a command;
	// "*" is any. Anyone who may define an agent may run them on the worker, so the
	// default is empty.
	Commands []string

	// Processes bounds the processes of one server, and with them the calls that it has
	// at a time; others wait. Default 8. Sessions is the same for servers over HTTP;
	// default 64.
	Processes int
	Sessions  int

	// Confinement starts the programs. The default confines them as much as the system
	// can, without a network, and refuses them if the system cannot confine programs.
	Confinement *confine.Confinement

	// Idle is the time after which a session without calls is closed. Default 1 minute.
	Idle time.Duration
}

// Caller talks to MCP servers. Each call has a session to itself; sessions are kept
// for the next call of the same server.
type Caller struct {
	guard  *guard.Guard
	client *http.Client
	cfg    Config

	mu     sync.Mutex
	pools  map[string]*pool
	closed bool

	closing sync.WaitGroup // calls in flight, and sessions that come to their end
}

// New returns a caller. HTTP goes through g.
func New(g *guard.Guard, cfg Config) *Caller {
	if cfg.Confinement == nil {
		cfg.Confinement = confine.Default()
	}
	if cfg.Processes == 0 {
		cfg.Processes = 8
	}
	if cfg.Sessions == 0 {
		cfg.Sessions = 64
	}
	if cfg.Idle == 0 {
		cfg.Idle = time.Minute
	}
	return &Caller{guard: g, client: g.Client(), cfg: cfg, pools: map[string]*pool{}}
}

// Resolve turns the name of a secret into its value for a "host:port"; "" is a program.
type Resolve func(name, host string) (string, error)

// List returns the tools of a server.
func (c *Caller) List(ctx context.Context, s Server, resolve Resolve) (Listing, error) {
	l, err := c.acquire(ctx, s, resolve)
	if err != nil {
		return nil, err
	}
	defer l.release(false)
	return l.session.listing, nil
}

// Tool returns the server's tool of this name. pinned is the server's listing at the
// time of pinning, restricted to the names in allow (all if it is empty): calls fail
// once the server lists anything else.
func (c *Caller) Tool(s Server, name string, allow []string, pinned Listing, resolve Resolve) tool.Tool {
	return tool.Func(func(ctx context.Context, call tool.Call) (tool.Result, error) {
		p, again := pendingOf(call)
		if again != nil {
			return *again, nil
		}
		r, err := c.call(ctx, s, name, call, p, resolve, func(now Listing) error { return pinned.verify(s, allow, now) })
		switch {
		case err == nil:
			return r, nil
		case ctx.Err() != nil:
			return tool.Result{}, ctx.Err()
		default:
			return tool.Error(err.Error()), nil
		}
	})
}

// call makes one call. A session that a server has forgotten was not used for
// anything, so the call is made in a new one.
func (c *Caller) call(ctx context.Context, s Server, name string, call tool.Call, p *pending, resolve Resolve, verify func(Listing) error) (tool.Result, error) {
	for again := false; ; again = true {
		l, err := c.acquire(ctx, s, resolve)
		if err != nil {
			return tool.Result{}, err
		}
		r, err := l.call(ctx, name, call, p, verify)
		l.release(err != nil)
		if errors.Is(err, mcp.ErrSessionMissing) && !again {
			continue
		}
		if err != nil {
			return tool.Result{}, errors.New(l.target.secrets.Redact(l.session.explain(s, err)))
		}
		return redacted(r, l.target.secrets), nil
	}
}

// redacted returns a result without the secrets that its server has repeated.
func redacted(r tool.Result, secrets *secret.Redactor) tool.Result {
	r.Content = secrets.Redact(r.Content)
	for i := range r.Images {
		// Redaction breaks an image that contains a secret; it is then omitted.
		r.Images[i].MediaType, r.Images[i].Data = secrets.Redact(r.Images[i].MediaType), secrets.Redact(r.Images[i].Data)
	}
	for i := range r.Files {
		f := &r.Files[i]
		f.Name, f.MediaType, f.Data = secrets.Redact(f.Name), secrets.Redact(f.MediaType), redactData(f.Data, secrets)
	}
	return r
}

// redactData returns the content of a file in base64 without secrets, in clear and in base64.
func redactData(encoded string, secrets *secret.Redactor) string {
	data, err := base64.StdEncoding.DecodeString(secrets.Redact(encoded))
	if err != nil {
		return secrets.Redact(encoded)
	}
	return base64.StdEncoding.EncodeToString([]byte(secrets.Redact(string(data))))
}

// Close returns when the calls in flight have ended and all sessions, with their
// processes, are gone.
func (c *Caller) Close() {
	c.mu.Lock()
	c.closed = true
	var idle []*session
	for key, p := range c.pools {
		idle = append(idle, p.idle...)
		p.idle = nil
		delete(c.pools, key)
	}
	for _, s := range idle {
		s.timer.Stop()
		c.closing.Go(s.close)
	}
	c.mu.Unlock()
	c.closing.Wait()
	c.client.CloseIdleConnections()
}
