package turnpike

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	core "github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/internal/inprocess"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Deployment is this process's part of a deployment: its connections to NATS and to the store, and the
// models, tools, hooks and loops that agents may refer to by name. The embedded Client acts as the process
// itself, and has the roles submitter, viewer, author and operator in Options.Tenant. A Deployment is safe
// for concurrent use.
type Deployment struct {
	*Client

	o       Options
	core    *core.Deployment
	kind    *goKind
	gateway *gateway.Gateway // serves the clients of this process
	process *inprocess.Process
	close   func()
}

// Open connects to the servers and creates missing streams. It tries to raise replicas and size limits of existing
// streams that are too low, and to set the age of events. Then it checks the settings of the servers: it fails if they
// cannot keep or execute runs correctly, as with eviction in Redis, and only logs others, although they may lose runs
// when a server fails, such as a Redis without an append-only file. The error joins the mistakes in o that Open finds
// first; it reports others, such as those in an address, a login, a prefix or a key, only when these are corrected. ctx
// bounds the call, without the attempt to connect to NATS, and not the Deployment. If the error is nil, the caller must
// call Close.
func Open(ctx context.Context, o Options) (*Deployment, error) {
	o.Name, o.Tenant = cmp.Or(o.Name, "turnpike"), cmp.Or(o.Tenant, state.DefaultTenant)
	kind, err := o.checked()
	if err != nil {
		return nil, fmt.Errorf("turnpike: %w", err)
	}
	d := &Deployment{o: o, kind: kind}
	if d.core, err = core.Open(ctx, o.config()); err != nil {
		return nil, fmt.Errorf("turnpike: %w", err)
	}
	// The metrics of the registry are those of the gateway that the caller may make.
	cfg := d.gatewayConfig()
	cfg.Auth, cfg.Registry = insiders{}, prometheus.NewRegistry()
	if d.gateway, err = d.core.NewGateway(cfg); err != nil {
		d.core.Close()
		return nil, fmt.Errorf("turnpike: %w", err)
	}
	d.process = inprocess.New(d.gateway.Inside())
	attending, leave := context.WithCancel(context.WithoutCancel(ctx))
	var attend sync.WaitGroup
	attend.Go(func() {
		if err := d.gateway.Attend(attending); err != nil && attending.Err() == nil {
			log := d.core.Config().Logger
			log.Warn("heartbeats of this process not sent", "error", err, "hint", "run `turnpike doctor`: NATS may be unreachable or refuse the operation. Without heartbeats, an upgrade of stored formats does not wait for this process")
		}
	})
	d.close = sync.OnceFunc(func() {
		d.process.Close()
		leave()
		attend.Wait()
		d.gateway.Close()
		d.core.Close()
	})
	d.Client = d.As(Principal{Name: "process:" + o.Name, Roles: []Role{api.RoleSubmitter, api.RoleViewer, api.RoleAuthor, api.RoleOperator}})
	return d, nil
}

// As returns a Client that acts for p, whom the caller has authenticated. The tenant is Options.Tenant if p names none.
// Approvals require a p with the role approver: the audit names the person. If p has no name, each call returns
// ErrUnauthenticated.
func (d *Deployment) As(p Principal) *Client {
	return &Client{api: d.process.As(p), closing: d.process.Closing()}
}

// Close disconnects and returns nil. The caller must call it after every Run of a worker or gateway has returned. Close
// ends the open requests of clients; later requests return ErrClosed. Close may be called more than once.
func (d *Deployment) Close() error {
	d.close()
	return nil
}

// gatewayConfig returns the settings that all gateways of this process share.
func (d *Deployment) gatewayConfig() gateway.Config {
	specs := agent.Builtin().Tools
	for name, s := range d.o.Kinds.Specs() {
		specs[name] = s
	}
	specs[toolspec.Go] = d.kind.strictSpec()
	return gateway.Config{
		Kinds: specs, Hooks: hookspec.Kinds(nil).With(d.o.HookKinds).Specs(), Providers: model.SpecsOf(d.o.Models), Loops: d.loops().Names(), Tenant: d.o.Tenant,
		ModelExtra: d.o.ModelExtra,
	}
}

// loops returns the built-in loops and those of the options.
func (d *Deployment) loops() loop.Registry {
	all := loop.Builtin()
	for name, f := range d.o.Loops {
		all[name] = f
	}
	return all
}

// kinds returns the kinds of tool of workers.
func (d *Deployment) kinds() tool.Kinds {
	return toolspec.Kinds(nil).With(tool.Kinds{toolspec.Go: d.kind}).With(d.o.Kinds)
}

// insiders refuses every token: the gateway of the clients of this process has no requests over HTTP. With
// it the audit has their changes.
type insiders struct{}

// Authenticate implements access.Authenticator.
func (insiders) Authenticate(context.Context, string) (access.Principal, error) {
	return access.Principal{}, access.ErrUnauthenticated
}
