package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/dispatch"
	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Config of a Gateway. The zero value of each field gives its default.
type Config struct {
	// Kinds of tool, Hooks, Providers and Loops are what workers have, by name, as far
	// as definitions must be checked against it. One that names anything else is
	// refused, with what there is. Default: what ships with Turnpike.
	Kinds     tool.Specs
	Hooks     hook.Specs
	Providers model.Specs
	Loops     []string

	// Auth finds out who asks. Default: nobody has to say who they are, and everybody may do
	// everything.
	Auth access.Authenticator

	// Login lets people log in to the page. Default: nobody can.
	Login *access.Login

	// PublicURL is the address by which browsers know the gateway, as in
	// https://turnpike.example.com. Without one people log in through an OpenID provider by
	// names of this machine only.
	PublicURL string

	// Services tells on which subjects somebody answers a tenant, and Secret returns nil if a
	// tenant has a secret for a host: who saves a definition is warned of those that nobody
	// has. Key is as Secret, for the workers' own key of a provider, which models use that name
	// none. Without them nobody is.
	Services func(ctx context.Context, tenant string) (map[string]bool, error)
	Key      func(ctx context.Context, tenant, name, host string) error
	Secret   func(ctx context.Context, tenant, name, host string) error

	// Prefix begins the subjects of the deployment, below which each tenant has its own. Default
	// "turnpike".
	Prefix string

	// Tenant is that of requests by principals of the whole deployment that name none, and
	// of submissions over the bus that name none. Default "default".
	Tenant string

	MaxBody int64 // bytes of a request; default 1 MiB

	// Limits bound the memory of requests, and connections, event streams and waits.
	Limits Limits

	// ModelExtra lists what model.extra of definitions that are saved may set beside what the
	// providers allow, as "PROVIDER:FIELD".
	ModelExtra []string

	// MaxResult bounds the max_result of tools in definitions that are saved. Default
	// tool.MaxResult, 4 MiB.
	MaxResult int

	// Hosts are names, without ports, by which the API may be asked for beside localhost and
	// addresses, such as that of a proxy. With any, or on loopback, or without Auth, it
	// answers to no others; beyond loopback names without a dot are fine, too.
	Hosts []string

	// DisableMetricsRoute removes /metrics from this address, for a process that serves
	// Registry on another one.
	DisableMetricsRoute bool

	// Retention is how long runs are kept after they have ended: Run deletes what is older. An
	// agent may keep its runs for less. The zero value keeps for ever.
	Retention agent.Retention

	// Restore says what a decision about an older copy of the store means, and carries it out.
	// Nil has nothing to decide.
	Restore *restore.Review

	// RedeliveryDelay is how long a new run is left to its message before the sweeper
	// publishes another. Default 5 s.
	RedeliveryDelay time.Duration

	// StoreBudget is how long one request waits for the store, all its calls together. Then it
	// is answered 503. Streams, batches and deletions have it for each call, and so has the
	// look at a run that ?wait goes on with. Default 3 s.
	StoreBudget time.Duration

	// WriteTimeout is how long a reader of an answer or of a stream may take nothing before
	// its connection is closed. Default 30 s.
	WriteTimeout time.Duration

	// ShutdownDelay is the time for which Serve continues after its context has ended, while
	// GET /readyz returns 503, so that load balancers stop sending requests before the
	// listener closes. Default 0.
	ShutdownDelay time.Duration

	// Checks, if not nil, looks at the dependencies for GET /readyz: a fatal
	// finding means not ready.
	Checks func(ctx context.Context) []state.Finding

	// Tracer makes the spans of submissions and of other requests that change
	// something. Default: none; the trace context of a caller is kept all the same.
	Tracer trace.TracerProvider

	// Random is read for the ids of runs and signals, by several goroutines at once.
	// Default crypto/rand.
	Random io.Reader

	Logger   *slog.Logger         // nil: no log
	Registry *prometheus.Registry // nil: one of its own
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	builtin := agent.Builtin()
	if c.Kinds == nil {
		c.Kinds = builtin.Tools
	}
	if c.Hooks == nil {
		c.Hooks = builtin.Hooks
	}
	if c.Providers == nil {
		c.Providers = builtin.Providers
	}
	if c.Loops == nil {
		c.Loops = loop.Builtin().Names()
	}
	if c.Prefix == "" {
		c.Prefix = "turnpike"
	}
	if c.Tenant == "" {
		c.Tenant = state.DefaultTenant
	}
	if c.MaxBody == 0 {
		c.MaxBody = 1 << 20
	}
	if c.MaxResult == 0 {
		c.MaxResult = tool.MaxResult
	}
	c.Limits = c.Limits.withDefaults()
	if c.RedeliveryDelay == 0 {
		c.RedeliveryDelay = 5 * time.Second
	}
	if c.StoreBudget == 0 {
		c.StoreBudget = 3 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 30 * time.Second
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

// Gateway serves the API.
type Gateway struct {
	cfg     Config
	known   agent.Known
	saving  agent.Known // checks definitions that are new: those from before a limit keep what they have
	store   state.Store
	bus     bus.Bus
	log     *slog.Logger
	metrics *metrics
	tracer  trace.Tracer // nil: no spans
	ids     ids
	latest  *latest
	clock   clock
	noisy   noisy
	tenants *access.Tenants
	keys    *access.Keys
	lookup  *lookup.Finder

	dispatch *dispatch.Dispatcher
	outbox   *outbox
	cleaner  *retention.Cleaner

	audiences audiences
	waiters   waiters
	changes   changes
	shares    shares
	workers   *workers
	lag       *lag
	outages   *outages
	reading   chan struct{} // held by streams while they read from the store
	bodies    *byteBudget
	streams   *quota
	waits     *quota
	conns     *connections

	mu     sync.Mutex
	agents map[agentKey]*agent.Agent

	draining atomic.Bool // the process is to end soon: GET /readyz is 503

	// quit ends streams when the server shuts down.
	quit chan struct{}

	tenantAdded chan struct{} // holds a token if a tenant may lack its streams
	stop        func()
}

type agentKey struct {
	tenant  string
	name    string
	version int
}

// New returns a gateway over a store and a bus.
func New(store state.Store, b bus.Bus, cfg Config) (*Gateway, error) {
	cfg = cfg.withDefaults()
	if err := checkPublicURL(cfg.PublicURL); err != nil {
		return nil, err
	}
	extra, err := model.NewExtras(cfg.Providers, cfg.ModelExtra)
	if err != nil {
		return nil, err
	}
	m := newMetrics()
	heard := &workers{}
	lag := newLag(b, store, heard)
	if err := errors.Join(m.register(cfg.Registry, lag, newStatuses(store)), registerWaiting(cfg.Registry, cfg.Restore)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	own := store // of reads that requests share, which have a limit of their own
	store = budgetStore{store}
	known := agent.Known{Tools: cfg.Kinds, Hooks: cfg.Hooks, Providers: cfg.Providers, Loops: cfg.Loops}
	saving := known
	saving.MaxResult, saving.ModelExtra = cfg.MaxResult, extra
	g := &Gateway{
		cfg: cfg, store: store, bus: b, workers: heard, lag: lag, log: cfg.Logger, metrics: m, ids: ids{random: cfg.Random},
		known: known, saving: saving,
		tenants: access.NewTenants(store, cfg.Tenant), keys: keysOf(cfg.Auth, store), reading: make(chan struct{}, concurrentReads), latest: newLatest(own), agents: map[agentKey]*agent.Agent{}, quit: make(chan struct{}),
		tenantAdded: make(chan struct{}, 1), outages: &outages{log: cfg.Logger},
	}
	if cfg.Tracer != nil {
		g.tracer = cfg.Tracer.Tracer(tracerName)
	}
	limits := cfg.Limits
	g.bodies = &byteBudget{limit: limits.BodyBytes, share: limits.TenantBodyBytes, tenants: map[string]int64{}}
	g.streams = &quota{what: "open event streams", code: api.CodeTooManyStreams, tenant: limits.TenantStreams, principal: limits.PrincipalStreams}
	g.waits = &quota{what: "requests with wait", code: api.CodeTooManyWaits, tenant: limits.TenantWaits, principal: limits.PrincipalWaits}
	g.conns = &connections{most: limits.Connections, quota: &quota{what: "connections", code: api.CodeTooManyConnections, tenant: limits.TenantConnections, principal: limits.PrincipalConnections}}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_request_bytes", Help: "Memory reserved for the bodies of requests, decoded."}, g.bodies.inUse)
	if err := cfg.Registry.Register(held); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	g.tenants.OnAdded(g.lookAtTenants)
	g.audiences = audiences{bus: b, read: g.readLog, runs: map[state.RunID]*audience{}}
	g.shares = shares{tenants: map[string]*share{}}
	g.changes = changes{g: g, feeds: map[string]*changeFeed{}}
	g.clock.ask = store.Now
	g.lookup = &lookup.Finder{Prefix: cfg.Prefix, Providers: cfg.Providers, Agents: store, Services: cfg.Services, Key: cfg.Key, Secret: cfg.Secret}
	g.cleaner = retention.New(store, b, retention.Config{Keep: cfg.Retention, Tenant: cfg.Tenant, Logger: cfg.Logger, Random: cfg.Random})
	if err := cfg.Registry.Register(newDeletions(g.cleaner.Stats)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	g.dispatch, g.outbox = dispatch.New(b, g.noisy.full), newOutbox(cfg.Logger, outboxMessages)
	if err := errors.Join(cfg.Registry.Register(g.outbox.sizes), cfg.Registry.Register(g.outbox.lost)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	g.stop = sync.OnceFunc(func() { close(g.quit) })
	return g, nil
}

// keysOf returns the keys by which callers are known, so that what is revoked here is refused here
// at once, or others over the store.
func keysOf(auth access.Authenticator, store state.Documents) *access.Keys {
	if chain, ok := auth.(access.Chain); ok && chain.Keys != nil {
		return chain.Keys
	}
	return access.NewKeys(store)
}

// handler answers a request, or returns what went wrong.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is who answers a request, and which roles may ask: any of them. One with none is
// for everybody, and its handler has no caller.
//
// One that changes something has an action, under which the audit has it.
type route struct {
	handler
	roles  []access.Role
	action string
	bodies int64 // Config.MaxBody that a body may have; 0 is one
}

// upTo returns the route with bodies of up to n times Config.MaxBody.
func (r route) upTo(n int64) route {
	r.bodies = n
	return r
}

func reads(h handler, roles ...access.Role) route { return route{handler: h, roles: roles} }

func writes(h handler, action string, roles ...access.Role) route {
	return route{handler: h, roles: roles, action: action}
}

// routes is the API: each row a pattern of http.ServeMux, who answers, and who may ask.
func (g *Gateway) routes() map[string]route {
	const (
		viewer, submitter, approver = access.Viewer, access.Submitter, access.Approver
		author, operator, admin     = access.Author, access.Operator, access.Admin
	)
	return map[string]route{
		"POST /v1/runs":                  writes(g.postRun, actionSubmit, submitter),
		"GET /v1/runs":                   g.lists(g.listRuns, viewer),
		"GET /v1/runs/{id}":              reads(g.getRun, viewer),
		"GET /v1/runs/{id}/messages":     g.lists(g.getMessages, viewer),
		"GET /v1/runs/{id}/turns":        g.lists(g.getTurns, viewer),
		"GET /v1/runs/{id}/events":       reads(g.getEvents, viewer),
		"GET /v1/events":                 reads(g.getChanges, viewer),
		"DELETE /v1/runs/{id}":           writes(g.deleteRun, actionDelete, operator),
		"POST /v1/runs/{id}/cancel":      writes(g.postCancel, actionCancel, submitter, operator), // submitters their own
		"POST /v1/runs/{id}/signals":     writes(g.postSignal, actionSignal, submitter, approver), // as the signal is
		"POST /v1/runs/{id}/fork":        writes(g.postFork, actionFork, submitter),
		"POST /v1/runs:cancel":           reads(g.postCancelRuns, operator),        // says itself what the audit has
		"POST /v1/drafts":                writes(g.postDraft, actionDraft, author), // who may submit, too
		"POST /v1/runs:batch":            writes(g.postBatch, actionBatch, submitter).upTo(batchBodies),
		"GET /v1/batches":                g.lists(g.listBatches, viewer),
		"GET /v1/batches/{id}":           g.lists(g.getBatch, viewer),
		"GET /v1/agents":                 g.lists(g.listAgents, viewer),
		"GET /v1/agents/{name}":          reads(g.getAgent, viewer),
		"GET /v1/agents/{name}/versions": g.lists(g.listVersions, viewer),
		"GET /v1/agents/{name}/draft":    reads(g.getAgentDraft, viewer),
		"DELETE /v1/agents/{name}/draft": writes(g.deleteAgentDraft, actionDeleteDraft, author),
		"POST /v1/agents/{name}/publish": writes(g.postPublish, actionPublish, author, admin), // not who wrote it
		"PUT /v1/agents/{name}":          writes(g.putAgent, actionPutAgent, author),
		"DELETE /v1/agents/{name}":       writes(g.deleteAgent, actionDeleteAgent, author),
		"GET /v1/dead":                   g.lists(g.listDead, viewer),
		"GET /v1/dead/{seq}":             reads(g.getDead, viewer),
		"POST /v1/dead/{seq}/replay":     writes(g.postReplay, actionReplay, operator),
		"GET /v1/workers":                reads(g.listWorkers, viewer),
		"GET /v1/queues":                 reads(g.listQueues, viewer),
		"GET /v1/restore":                reads(g.getRestore, viewer),
		"POST /v1/restore:accept":        writes(g.postAccept, actionAccept, operator, admin),
		"POST /v1/restore:abandon":       writes(g.postAbandon, actionAbandon, operator, admin),
		"GET /v1/keys":                   reads(g.listKeys, admin),
		"POST /v1/keys":                  writes(g.postKey, actionCreateKey, admin),
		"DELETE /v1/keys/{id}":           writes(g.deleteKey, actionRevokeKey, admin),
		"GET /v1/tenants":                reads(g.listTenants, admin),
		"GET /v1/tenants/{name}":         reads(g.getTenant, admin),
		"PUT /v1/tenants/{name}":         writes(g.putTenant, actionPutTenant, admin),
		"DELETE /v1/tenants/{name}":      writes(g.deleteTenant, actionDeleteTenant, admin),
		"GET /v1/audit":                  reads(g.getAudit, admin),
		"GET /v1/whoami":                 reads(g.whoAmI, viewer),
		"GET /v1/session":                reads(g.getSession),
		"POST /v1/session":               reads(g.postSession), // the log has who came, the audit what they did
		"DELETE /v1/session":             reads(g.deleteSession),
		"GET /auth/login":                reads(g.getLogin),
		"GET /auth/callback":             reads(g.getCallback),
		"GET /healthz":                   reads(g.healthz),
		"GET /readyz":                    reads(g.readyz),
		"GET /openapi.json":              reads(openAPI),
	}
}

// Handler returns the API as an http.Handler.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, r := range g.routes() {
		mux.Handle(pattern, g.serve(pattern, g.authorized(r)))
	}
	if !g.cfg.DisableMetricsRoute {
		mux.Handle("GET /metrics", g.serve("GET /metrics", g.authorized(reads(g.getMetrics, access.Viewer))))
	}
	mux.Handle("GET /ui/", g.serve("GET /ui/", page()))
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	// A page of another origin must not act in the name of whoever looks at it. It has no token
	// to send: requests with one are their senders' own.
	guard := http.NewCrossOriginProtection()
	if g.cfg.PublicURL != "" {
		_ = guard.AddTrustedOrigin(g.cfg.PublicURL) // New has checked it
	}
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.fail(w, r, problem(http.StatusForbidden, api.CodeForbidden, "cross-origin request refused"))
	}))
	matched := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern == "" {
			g.unmatched(h).ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	guarded := guard.Handler(matched)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = g.receive(w, r)
		r, release := g.receiveBody(w, r)
		defer release()
		if size := headerBytes(r); size > maxHeader {
			g.fail(w, r, problem(http.StatusRequestHeaderFieldsTooLarge, api.CodeHeadersTooLarge, "address and headers have %d bytes, %d are allowed", size, maxHeader))
			return
		}
		if g.draining.Load() {
			w.Header().Set("Connection", "close") // the next request goes elsewhere
		}
		if !g.invited(r) {
			g.fail(w, r, problem(http.StatusForbidden, api.CodeForbidden, "this gateway is not known as %q: if it is to be, or a proxy before it is, name it in TURNPIKE_HOSTS", r.Host))
			return
		}
		if _, ok := bearer(r); ok && g.cfg.Auth != nil {
			matched.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// lasting are the routes that ask the store again and again, for as long as they take.
var lasting = map[string]bool{"GET /v1/runs/{id}/events": true, "GET /v1/events": true, "POST /v1/runs:batch": true, "POST /v1/runs:cancel": true, "DELETE /v1/runs/{id}": true, "GET /v1/restore": true, "POST /v1/restore:accept": true, "POST /v1/restore:abandon": true}

// serve runs a handler and reports what it returns.
func (g *Gateway) serve(route string, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, received: time.Now()}
		r, traced := g.traceRequest(route, r.WithContext(g.budgeted(r.Context(), lasting[route])))
		defer func() { endRequest(traced, rec.status) }()
		// Query would leave out what it cannot read.
		_, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			err = invalid("the query cannot be read: %v", err)
		} else {
			err = g.calm(h, rec, r)
		}
		if err != nil {
			g.fail(rec, r, err)
		}
		g.metrics.answered(route, r, rec)
	})
}

// recorder remembers the status of a response, and when it began.
type recorder struct {
	http.ResponseWriter

	status          int
	received, began time.Time
}

func (r *recorder) WriteHeader(status int) {
	r.note(status)
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.note(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

func (r *recorder) note(status int) { r.status, r.began = status, time.Now() }

// Unwrap lets http.ResponseController flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func reply(w http.ResponseWriter, status int, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the reader may be gone; there is nobody to tell
	return nil
}

// encode returns one line of JSON, in which text stands as it does in events.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// replyPage answers with a list item by item: the history of a long run is not to be in
// memory once more, and that for each who looks at it.
func replyPage[T any](w http.ResponseWriter, p api.Page[T]) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriter(w) // the reader may be gone; there is nobody to tell
	write := func(before string, v any) {
		b, err := encode(v)
		if err != nil {
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		}
		_, _ = out.WriteString(before)
		_, _ = out.Write(bytes.TrimSuffix(b, []byte("\n")))
	}
	_, _ = out.WriteString(`{"items":[`)
	comma := ""
	for i := range p.Items {
		write(comma, &p.Items[i])
		comma = ","
	}
	write(`],"next_cursor":`, p.NextCursor)
	if p.Examined != nil {
		write(`,"examined":`, p.Examined)
		write(`,"complete":`, p.Complete)
	}
	_, _ = out.WriteString("}\n")
	_ = out.Flush()
	return nil
}

// definition returns a version of an agent; 0 is the latest.
func (g *Gateway) definition(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	if version == 0 {
		return bounded(ctx, func(ctx context.Context) (state.AgentVersion, error) {
			return g.latest.get(ctx, agentKey{tenant: tenant, name: name})
		})
	}
	return g.store.Agent(ctx, tenant, name, version)
}

// compiled returns one version of an agent, compiled; 0 is the latest. What starts a run asks
// here, so a draft is refused here where the tenant wants review.
func (g *Gateway) compiled(ctx context.Context, tenant, name string, version int) (*agent.Agent, error) {
	a, err := g.compiledDefinition(ctx, tenant, name, version)
	if err == nil && a.Name != name && strings.HasPrefix(name, draftPrefix) {
		err = g.checkDraft(ctx, tenant, name)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (g *Gateway) compiledDefinition(ctx context.Context, tenant, name string, version int) (*agent.Agent, error) {
	record, err := g.definition(ctx, tenant, name, version)
	if errors.Is(err, state.ErrNotFound) {
		return nil, problem(http.StatusNotFound, api.CodeAgentNotFound, "there is no agent %q: PUT /v1/agents/%s defines it", name, name)
	}
	if err != nil {
		return nil, err
	}
	key := agentKey{tenant, name, record.Version}
	g.mu.Lock()
	a := g.agents[key]
	g.mu.Unlock()
	if a != nil {
		return a, nil
	}
	def, err := agent.Parse(record.Definition)
	if err == nil {
		a, err = g.known.Compile(def, record.Version)
	}
	if err != nil {
		return nil, problem(http.StatusUnprocessableEntity, api.CodeInvalidAgent, "agent %q is not valid for this build: %v", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.agents) > 1000 {
		clear(g.agents)
	}
	g.agents[key] = a
	return a, nil
}
