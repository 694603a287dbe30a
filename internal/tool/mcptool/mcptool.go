package mcptool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
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

// Server is the address of an MCP server, or the command that starts it.
type Server = toolspec.Server

// Config is the configuration of a Caller. A zero field has the default that its comment names.
type Config struct {
	// Commands are the programs that the caller may start, each written exactly as the first word of the command in
	// a definition; "*" allows all. Everyone who may define an agent can run them on the worker, with any arguments,
	// unless the policy of the tenant forbids it. By default it allows none.
	Commands []string

	// Processes is the maximum number of processes of one server with the same secrets for one tenant, and so of its
	// concurrent calls; further calls wait. Default: 8. Sessions is that number for servers over HTTP. Default: 64.
	Processes int
	Sessions  int

	// Confinement starts the programs. Default: confine.Default(), which confines programs as much as the system can,
	// without a network, and refuses them if the system cannot confine programs.
	Confinement *confine.Confinement

	// Idle is the time after which a session without calls is closed. Default: 1 minute.
	Idle time.Duration
}

// Caller makes calls of the tools of MCP servers. No two calls use a session at the same time. Caller keeps a session
// that still works until it has been idle for Config.Idle, for later calls of the same server with the same secrets by
// the same tenant. Caller is safe for concurrent use.
type Caller struct {
	guard  *guard.Guard
	client *http.Client
	cfg    Config

	mu     sync.Mutex
	pools  map[string]*pool
	closed bool

	closing sync.WaitGroup // calls in flight, and sessions that are being closed
}

// New returns a caller that makes HTTP requests through g. The caller of New must call Close.
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

// Resolve returns the value of the secret with a name for a "host:port"; an empty host is a program. It must be safe
// for concurrent use.
type Resolve func(name, host string) (string, error)

// List returns the tools of a server, for a tenant. If it uses a session of an earlier call of that tenant, the listing
// is the last one of that session.
func (c *Caller) List(ctx context.Context, tenant string, s Server, resolve Resolve) (Listing, error) {
	l, err := c.acquire(ctx, tenant, s, resolve)
	if err != nil {
		return nil, err
	}
	defer l.release(false)
	return l.session.listing, nil
}

// Tool returns the tool that the server s calls name. pinned is the listing of the server that the agent's version has
// pinned, restricted to the names in allow, or all if that is empty. If the server lists something else later, calls
// fail. A failure is a result for the model; the error of a call is that of its context.
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

// call makes one call. If the server no longer knows the session, it has not executed the call, so call makes it once
// more in a new session.
func (c *Caller) call(ctx context.Context, s Server, name string, call tool.Call, p *pending, resolve Resolve, verify func(Listing) error) (tool.Result, error) {
	for again := false; ; again = true {
		l, err := c.acquire(ctx, call.Tenant, s, resolve)
		if err != nil {
			return tool.Result{}, fmt.Errorf("%w. The call was not made: continue without it, or make it again later", err)
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

// redacted returns a result without the secrets of the server, in case the server repeats them. It changes the images
// and files of r.
func redacted(r tool.Result, secrets *secret.Redactor) tool.Result {
	r.Content = secrets.Redact(r.Content)
	for i := range r.Images {
		// Redaction makes an image invalid that contains a secret; such an image is omitted later.
		r.Images[i].MediaType, r.Images[i].Data = secrets.Redact(r.Images[i].MediaType), secrets.Redact(r.Images[i].Data)
	}
	for i := range r.Files {
		f := &r.Files[i]
		f.Name, f.MediaType, f.Data = secrets.Redact(f.Name), secrets.Redact(f.MediaType), redactData(f.Data, secrets)
	}
	return r
}

// redactData returns the content of a file, in base64, without secrets in plain text or in base64.
func redactData(encoded string, secrets *secret.Redactor) string {
	data, err := base64.StdEncoding.DecodeString(secrets.Redact(encoded))
	if err != nil {
		return secrets.Redact(encoded)
	}
	return base64.StdEncoding.EncodeToString([]byte(secrets.Redact(string(data))))
}

// Close makes later calls fail, and returns when the calls in flight have ended and all sessions and their processes
// are gone.
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
