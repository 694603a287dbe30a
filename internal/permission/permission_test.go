package permission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/app/equipped"
	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/doctor"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/hook/natshook"
	"github.com/turnpike-dev/turnpike/internal/permission"
	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/standard"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// users are the users of the tests, each with its role and its tenant.
var users = map[string]struct {
	role  permission.Role
	scope permission.Scope
}{
	"gateway":       {permission.Gateway, permission.Scope{}},
	"worker":        {permission.Worker, permission.Scope{}},
	"client":        {permission.Client, permission.Scope{}},
	"client-acme":   {permission.Client, permission.Scope{Tenant: "acme"}},
	"tool":          {permission.Tool, permission.Scope{}},
	"tool-named":    {permission.Tool, permission.Scope{Tools: []string{"convert"}}},
	"tool-acme":     {permission.Tool, permission.Scope{Tenant: "acme"}},
	"observer":      {permission.Observer, permission.Scope{}},
	"observer-acme": {permission.Observer, permission.Scope{Tenant: "acme"}},

	"observer-default": {permission.Observer, permission.Scope{Tenant: "default"}},
}

// deployment is a NATS server with users of all roles.
type deployment struct {
	t   *testing.T
	url string
}

func start(t *testing.T) deployment {
	t.Helper()
	var conf strings.Builder
	conf.WriteString("authorization { users = [\n")
	for name, u := range users {
		u.scope.Prefix = "turnpike"
		n, err := permission.ForNATS(u.role, u.scope)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&conf, "{user: %s, password: of-%s\n%s}\n", name, name, n)
	}
	conf.WriteString("] }\n")
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatalf("%v in\n%s", err, conf.String())
	}
	return deployment{t, testbed.NATSWith(t, func(o *server.Options) { o.Users = opts.Users }).ClientURL()}
}

func login(name string) natslogin.Login {
	l := natslogin.Login{User: credential.Value{Name: "USER", Text: name}, Password: credential.Value{Name: "PASSWORD", Text: "of-" + name}}
	u := users[name]
	u.scope.Prefix = "turnpike"
	if n, err := permission.ForNATS(u.role, u.scope); err == nil {
		l.Inbox = n.Inbox
	}
	return l
}

// connect returns a user's connection, and the server's refusals for it.
func (d deployment) connect(name string) (*nats.Conn, <-chan error) {
	d.t.Helper()
	refused := make(chan error, 1000)
	options, err := login(name).Options()
	if err != nil {
		d.t.Fatal(err)
	}
	nc, err := nats.Connect(d.url, append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	return nc, refused
}

// runs starts a gateway and a worker with their own users, and returns a client of the gateway. The test fails
// if the server refuses them anything.
func (d deployment) runs(store func(role string) deploy.Config) (c *api.Client, gatewayAt string) {
	d.t.Helper()
	open := func(role string) *deploy.Deployment {
		cfg := store(role)
		nc, refused := d.connect(role)
		cfg.NATS, cfg.EventFeed = nc, true
		opened, err := deploy.Open(d.t.Context(), cfg)
		if err != nil {
			d.t.Fatalf("%s: %v", role, err)
		}
		d.t.Cleanup(func() {
			opened.Close()
			for len(refused) > 0 {
				d.t.Errorf("%s: %v", role, <-refused)
			}
		})
		return opened
	}
	of := open("gateway")
	g, err := of.NewGateway(gateway.Config{})
	if err != nil {
		d.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	d.goes(func(ctx context.Context) error { return g.Serve(ctx, listener) })
	w, err := equipped.Worker(open("worker"), worker.Config{}, standard.Config{}, "")
	if err != nil {
		d.t.Fatal(err)
	}
	d.goes(w.Run)
	at := "http://" + listener.Addr().String()
	return api.New(at), at
}

func (d deployment) goes(run func(ctx context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	d.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			d.t.Error(err)
		}
	})
}

const converter = `
name: converter
tools: [{name: convert, kind: nats}]
hooks: {pre_tool: [{kind: nats, subject: %s.hook.policy}]}
model:
  provider: scripted
  responses: [{tool_calls: [{name: convert, arguments: {}}]}, {text: "Three miles."}]
`

const slow = `
name: slow
tools: [{name: pick, kind: client, schema: {type: object}}]
model: {provider: scripted, responses: [{tool_calls: [{name: pick, arguments: {}}]}]}
`

// A full run works with the generated users: a service submits over NATS and receives events and the reply, a
// tool and a hook are called, another run is aborted. This holds for Redis with its users, and for JetStream.
func TestRuns(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) func(string) deploy.Config{"jetstream": noRedis, "redis": withRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			c, at := d.runs(store(t))
			for tenant, client := range map[string]*api.Client{"default": c, "acme": api.New(at, api.WithTenant("acme"))} {
				if tenant == "acme" {
					if _, err := c.PutTenant(t.Context(), tenant, api.TenantSettings{}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := client.PutAgent(t.Context(), "slow", []byte(slow)); err != nil {
					t.Fatal(err)
				}
			}
			for tenant, service := range map[string]string{"default": "tool-named", "acme": "tool-acme"} {
				d.converts(api.New(at, api.WithTenant(tenant)), tenant, service)
			}
			if ended := d.submits("client", "turnpike.", "slow", true); ended.Status != "cancelled" {
				t.Errorf("the aborted run ended %+v", ended)
			}
			if ended := d.submits("client-acme", "turnpike.t.acme.", "slow", true); ended.Status != "cancelled" || ended.Tenant != "acme" {
				t.Errorf("the aborted run of acme ended %+v", ended)
			}
			if name == "jetstream" {
				return // doctor reads the same with either store
			}
			cfg := store(t)("gateway")
			cfg.NATSURL, cfg.NATSLogin, cfg.EventFeed = d.url, login("gateway"), true
			for _, f := range doctor.Findings(t.Context(), cfg, "") {
				if !f.OK && f.Fatal {
					t.Errorf("doctor as the gateway: %+v", f)
				}
			}
		})
	}
}

// converts executes a run of a tenant whose tool and hook a service of that tenant serves, while one of another
// tenant serves a tool of the same name. The server refuses the service nothing.
func (d deployment) converts(c *api.Client, tenant, service string) {
	d.t.Helper()
	root := toolkit.Root("turnpike", tenant)
	if _, err := c.PutAgent(d.t.Context(), "converter", fmt.Appendf(nil, converter, root)); err != nil {
		d.t.Fatal(err)
	}
	if _, err := c.PutAgent(d.t.Context(), "foreign", []byte(strings.Replace(fmt.Sprintf(converter, "turnpike.t.other"), "converter", "foreign", 1))); err == nil || !strings.Contains(err.Error(), "hooks.pre_tool[0].subject") {
		d.t.Errorf("a hook of another tenant: %v", err)
	}
	connections, denied := map[string]*nats.Conn{}, map[string]<-chan error{}
	var stops []func() error
	asked := make(chan string, 10)
	for name, of := range map[string]string{"tool-named": "default", "tool-acme": "acme"} {
		nc, refused := d.connect(name)
		connections[name], denied[name] = nc, refused
		stop, err := toolkit.ServeTenant(nc, "turnpike", of, toolkit.Tool{Name: "convert", Description: "of " + of, Handler: func(_ context.Context, c toolkit.Call) (toolkit.Result, error) {
			asked <- of + " " + c.RunID
			return toolkit.Result{Content: "3"}, nil
		}})
		if err != nil {
			d.t.Fatal(err)
		}
		stops = append(stops, stop)
	}
	stop, err := natshook.Serve(connections[service], root+".hook.policy", hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
		asked <- "hook of " + r.Tenant
		return hook.Answer{}, nil
	}))
	if err != nil {
		d.t.Fatal(err)
	}
	stops = append(stops, stop)
	user, begin := "client", "turnpike."
	if tenant != "default" {
		user, begin = "client-"+tenant, root+"."
	}
	ended := d.submits(user, begin, "converter", false)
	if ended.Status != "completed" || ended.Output == nil || *ended.Output != "Three miles." || ended.Tenant != tenant {
		d.t.Errorf("the run of %s with a tool and a hook ended %+v", tenant, ended)
	}
	if first, second := <-asked, <-asked; first != "hook of "+tenant || second != tenant+" "+ended.ID || len(asked) > 0 {
		d.t.Errorf("the run of %s called %q and %q, and %d others", tenant, first, second, len(asked))
	}

	// An observer finds the tools of the tenant, and no others.
	for _, observer := range []string{"observer", "observer-" + tenant} {
		nc, refused := d.connect(observer)
		found, err := natstool.Discover(d.t.Context(), nc, "turnpike", tenant)
		if err != nil || len(found) != 1 || found[0].Description != "of "+tenant {
			d.t.Errorf("%s finds %+v, %v", observer, found, err)
		}
		if len(refused) > 0 {
			d.t.Errorf("%s: %v", observer, <-refused)
		}
		nc.Close()
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			d.t.Error(err)
		}
	}
	for name, refused := range denied {
		if len(refused) > 0 {
			d.t.Errorf("%s: %v", name, <-refused)
		}
		connections[name].Close()
	}
}

// submits submits over NATS as a service does, and returns the run in the reply. If abort is set, it aborts the
// run at its first event.
func (d deployment) submits(user, root, agent string, abort bool) (ended api.Run) {
	d.t.Helper()
	nc, refused := d.connect(user)
	defer nc.Close()
	replies, err := nc.SubscribeSync(root + "reply.mine")
	if err != nil {
		d.t.Fatal(err)
	}
	events, err := nc.SubscribeSync(root + "events.*")
	if err != nil {
		d.t.Fatal(err)
	}
	m := &nats.Msg{Subject: root + "submit." + agent, Data: []byte(`{"input": "go"}`), Header: nats.Header{"Turnpike-Reply": {root + "reply.mine"}}}
	if _, err := nc.RequestMsgWithContext(d.t.Context(), m); err != nil { // stored
		d.t.Fatal(err)
	}
	event := &nats.Msg{}
	for !strings.Contains(string(event.Data), "run.submitted") { // those of an earlier run may be late
		if event, err = events.NextMsgWithContext(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
	}
	if abort {
		if _, err := nc.RequestWithContext(d.t.Context(), root+"abort."+event.Subject[strings.LastIndexByte(event.Subject, '.')+1:], nil); err != nil {
			d.t.Fatal(err)
		}
	}
	reply, err := replies.NextMsgWithContext(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	if err := json.Unmarshal(reply.Data, &ended); err != nil {
		d.t.Fatal(err)
	}
	if len(refused) > 0 {
		d.t.Errorf("%s: %v", user, <-refused)
	}
	return ended
}

func noRedis(*testing.T) func(string) deploy.Config {
	return func(string) deploy.Config { return deploy.Config{} }
}

// withRedis starts a Redis with the users of the roles.
func withRedis(t *testing.T) func(string) deploy.Config {
	t.Helper()
	var acl strings.Builder
	acl.WriteString(permission.RedisDefaultUser)
	for _, r := range []permission.Role{permission.Gateway, permission.Worker, permission.Observer} {
		line, err := permission.ForRedis(r, "turnpike", "its-"+string(r), "of-"+string(r))
		if err != nil {
			t.Fatal(err)
		}
		acl.WriteString(line)
	}
	path := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(path, []byte(acl.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	url := testbed.RedisProcess(t, "--aclfile", path, "--appendonly", "yes").URL
	return func(role string) deploy.Config {
		return deploy.Config{RedisURL: url, RedisLogin: redisstore.Login{
			User: redisstore.Secret{Name: "USER", Text: "its-" + role}, Password: redisstore.Secret{Name: "PASSWORD", Text: "of-" + role},
		}}
	}
}

// The server refuses everything that is not part of a role.
func TestRefused(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.runs(noRedis(t))
	turns := []string{
		"turnpike.turn.normal.0", "turnpike.turns.2.normal.0", "turnpike.events.run_1", "turnpike.t.acme.events.run_1", "turnpike.live.run_1", "turnpike.grown.run_1",
		"turnpike.presence.w", "turnpike.layout", "turnpike.layout.changed", "turnpike.dead.normal", "turnpike.state.x", "turnpike.quota.x", "turnpike.audit.x",
		"$JS.API.STREAM.DELETE.TURNPIKE_TURNS", "$JS.API.STREAM.PURGE.TURNPIKE_TURNS", "$JS.API.CONSUMER.CREATE.TURNPIKE_EVENTS", "$JS.API.CONSUMER.CREATE.TURNPIKE_EVENTS.x.turnpike.events.>",
		"$JS.API.STREAM.UPDATE.TURNPIKE_TURNS", "$JS.API.STREAM.CREATE.X", "$JS.API.CONSUMER.MSG.NEXT.TURNPIKE_TURNS.workers-normal", "$JS.ACK.TURNPIKE_TURNS.workers-normal.1.1.1.1.1",
		"turnpike.watch", "turnpike.reply.x", "turnpike.t.acme.reply.x", "_INBOX_default.x",
	}
	calls := []string{"turnpike.tool.convert", "turnpike.hook.policy", "turnpike.t.acme.tool.convert", "turnpike.t.acme.hook.policy"}
	looks := []string{"turnpike.t.acme.srv.INFO", "turnpike.t.acme.srv.STATS", "turnpike.t.acme.srv.INFO.convert"}
	submits := []string{"turnpike.submit.a", "turnpike.abort.run_1"}
	acmes := []string{"turnpike.t.acme.submit.a", "turnpike.t.acme.abort.run_1"}
	inboxes := []string{"turnpike.t.acme.inbox.x", "turnpike.t.acme.inbox.srv.x"}
	strangers := []string{"turnpike.t.other.inbox.x", "turnpike.t.other.tool.x", "turnpike.t.other.srv.INFO", "turnpike.t.other.submit.a", "turnpike.t.other.abort.run_1", "$SYS.REQ.SERVER.PING", "elsewhere"}
	publish := map[string][][]string{
		"gateway":       {calls, looks[1:], {"$SRV.STATS", "$JS.API.STREAM.DELETE.TURNPIKE_TURNS", "$JS.API.STREAM.PURGE.TURNPIKE_TURNS", "$JS.API.STREAM.DELETE.TURNPIKE_STATE", "elsewhere", "$SYS.REQ.SERVER.PING"}},
		"worker":        {submits[:1], acmes[:1], {"$JS.API.STREAM.DELETE.TURNPIKE_TURNS", "$JS.API.STREAM.PURGE.TURNPIKE_TURNS", "$JS.API.STREAM.DELETE.TURNPIKE_STATE", "elsewhere"}},
		"client":        {turns, calls, looks, inboxes, acmes, strangers},
		"client-acme":   {turns, calls, looks, inboxes, submits, strangers},
		"tool":          {turns, calls, looks, inboxes, submits, acmes, strangers},
		"tool-named":    {turns, calls, looks, inboxes, submits, acmes, strangers},
		"tool-acme":     {turns, calls, looks, submits, acmes, strangers, {"$SRV.INFO", "_INBOX.x", "_INBOX_all_observer.x", "_INBOX_acme.x"}},
		"observer":      {turns, calls, looks[2:], inboxes, submits, acmes, strangers[:2], {"$JS.API.INFO", "$JS.API.STREAM.INFO.TURNPIKE_TURNS", "$JS.API.DIRECT.GET.TURNPIKE_DEAD", "$JS.API.STREAM.MSG.GET.TURNPIKE_EVENTS"}},
		"observer-acme": {turns, calls, looks[2:], inboxes, submits, acmes, strangers, {"$JS.API.STREAM.INFO.TURNPIKE_TURNS", "$SRV.INFO"}},

		"observer-default": {turns, calls, looks, inboxes, submits, acmes, strangers},
	}
	everything := []string{">", "turnpike.>", "turnpike.turn.>", "_INBOX.>", "_INBOX.*", "$JS.>", "turnpike.state.>"}
	hear := map[string][]string{
		"gateway":     {">", "turnpike.tool.x", "turnpike.t.acme.tool.x", "turnpike.hook.x", "elsewhere"},
		"worker":      {">", "turnpike.tool.x", "turnpike.t.acme.tool.x", "turnpike.hook.x", "elsewhere"},
		"client":      append([]string{"turnpike.t.acme.events.*", "turnpike.t.*.events.*", "turnpike.t.acme.reply.x", "turnpike.live.*", "turnpike.submit.*", "turnpike.tool.x", "$SRV.INFO"}, everything...),
		"client-acme": append([]string{"turnpike.events.*", "turnpike.t.*.events.*", "turnpike.t.other.events.*", "turnpike.reply.x", "turnpike.live.*", "turnpike.t.acme.submit.*", "_INBOX_default.>", "$SRV.INFO"}, everything...),
		"tool":        append([]string{"turnpike.t.acme.tool.x", "turnpike.t.acme.hook.x", "turnpike.t.acme.srv.INFO", "turnpike.events.*", "turnpike.submit.*", "turnpike.t.acme.inbox.*", "turnpike.t.acme.inbox.*.cancel"}, everything...),
		"tool-named":  append([]string{"turnpike.tool.refund", "turnpike.tool.*", "turnpike.t.acme.tool.convert"}, everything...),
		"tool-acme": append([]string{"turnpike.tool.x", "turnpike.hook.x", "$SRV.INFO", "$SRV.INFO.x", "turnpike.t.other.tool.x", "turnpike.t.other.srv.INFO", "turnpike.t.acme.events.*",
			"turnpike.t.acme.inbox.*", "turnpike.t.acme.inbox.srv.*", "turnpike.t.*.inbox.*.cancel", "_INBOX.*.cancel"}, everything...),
		"observer":      append([]string{"turnpike.submit.*", "turnpike.tool.x", "turnpike.reply.x", "turnpike.t.acme.inbox.*", "turnpike.t.acme.inbox.>"}, everything...),
		"observer-acme": append([]string{"turnpike.events.*", "turnpike.t.other.events.*", "turnpike.live.*", "turnpike.dead.*", "turnpike.t.acme.reply.x", "turnpike.t.acme.inbox.*", "turnpike.t.other.inbox.srv.*"}, everything...),

		"observer-default": append([]string{"turnpike.t.acme.events.*", "turnpike.t.*.events.*", "turnpike.live.*", "turnpike.dead.*", "turnpike.reply.x", "_INBOX_all_observer.>"}, everything...),
	}
	if len(publish) != len(users) || len(hear) != len(users) {
		t.Errorf("%d users can publish and %d can subscribe, of %d", len(publish), len(hear), len(users))
	}
	for user, lists := range publish {
		nc, refused := d.connect(user)
		for _, list := range lists {
			for _, subject := range list {
				if err := nc.Publish(subject, []byte("{}")); err != nil {
					t.Fatal(err)
				}
				expect(t, nc, refused, user+" publishes to "+subject)
			}
		}
	}
	for user, list := range hear {
		nc, refused := d.connect(user)
		for _, subject := range list {
			if _, err := nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			expect(t, nc, refused, user+" subscribes to "+subject)
		}
	}
}

// expect waits for the refusal of the last request.
func expect(t *testing.T, nc *nats.Conn, refused <-chan error, what string) {
	t.Helper()
	if err := nc.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	var err error
	select {
	case err = <-refused:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s, and may", what)
	}
	if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
		t.Errorf("%s: %v", what, err)
	}
}

// A Redis user of a role can do what its role does, on the keys of the deployment only.
func TestRedisRefused(t *testing.T) {
	t.Parallel()
	cfg := withRedis(t)
	for role, commands := range map[string][][]any{
		"worker": {
			{"flushall"}, {"flushdb"}, {"keys", "*"}, {"config", "get", "*"}, {"config", "set", "dir", "/"}, {"acl", "list"}, {"get", "other:x"}, {"set", "x", "y"},
			{"eval", "return redis.call('get', KEYS[1])", 1, "other:x"}, {"eval", "return redis.call('flushall')", 0}, {"object", "freq", "other:x"}, {"shutdown"}, {"replicaof", "no", "one"},
			{"publish", "x", "y"}, {"module", "list"}, {"save"}, {"client", "kill", "type", "normal"}, {"function", "flush"}, {"monitor"}, {"script", "flush"}, {"scan", "0"}, {"randomkey"},
			{"eval", "return redis.call('scan', '0')", 0}, {"eval", "return redis.call('randomkey')", 0},
		},
		"observer": {{"set", "turnpike:x", "y"}, {"del", "turnpike:x"}, {"get", "other:x"}, {"eval", "return 1", 0}, {"flushall"}, {"scan", "0"}, {"randomkey"}},
	} {
		settings := cfg(role)
		o, err := redis.ParseURL(settings.RedisURL)
		if err != nil {
			t.Fatal(err)
		}
		o.Username, o.Password = settings.RedisLogin.User.Text, settings.RedisLogin.Password.Text
		rdb := redis.NewClient(o)
		defer rdb.Close() //nolint:errcheck // the test is over
		for _, c := range commands {
			if err := rdb.Do(t.Context(), c...).Err(); err == nil || !strings.Contains(strings.ToLower(err.Error()), "perm") && !strings.Contains(err.Error(), "can't run this command") {
				t.Errorf("%s %v: %v, want no permission", role, c, err)
			}
		}
	}
}

// Invalid scopes are refused, and so are values that would add lines to a configuration.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role permission.Role
		s    permission.Scope
		want string
	}{
		{"king", permission.Scope{Prefix: "turnpike"}, "role"},
		{permission.Client, permission.Scope{}, "prefix"},
		{permission.Client, permission.Scope{Prefix: "a.>"}, "prefix"},
		{permission.Client, permission.Scope{Prefix: "turnpike", Tenant: "*"}, "tenant"},
		{permission.Client, permission.Scope{Prefix: "turnpike", Tenant: "a\"]\n"}, "tenant"},
		{permission.Worker, permission.Scope{Prefix: "turnpike", Tenant: "acme"}, "serves all tenants"},
		{permission.Tool, permission.Scope{Prefix: "turnpike", Tools: []string{"a.>"}}, "tool"},
		{permission.Client, permission.Scope{Prefix: "turnpike", Tools: []string{"a"}}, "role tool"},
		{permission.Worker, permission.Scope{Prefix: "turnpike", Also: []string{"turnpike.tool.x"}}, "subject"},
		{permission.Worker, permission.Scope{Prefix: "turnpike", Also: []string{">"}}, "subject"},
		{permission.Worker, permission.Scope{Prefix: "turnpike", Also: []string{"$JS.API.>"}}, "subject"},
		{permission.Worker, permission.Scope{Prefix: "turnpike", Domain: "a b"}, "domain"},
	} {
		if _, err := permission.ForNATS(c.role, c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: %v, want %q", c.role, c.s, err, c.want)
		}
	}
	if n, err := permission.ForNATS(permission.Gateway, permission.Scope{Prefix: "a.b", Domain: "hub", Also: []string{"orders.>"}}); err != nil ||
		!strings.Contains(n.String(), `"$JS.hub.API.STREAM.DELETE.A_B_TURNS"`) || !strings.Contains(n.String(), `"orders.>"`) {
		t.Errorf("%v, %s", err, n)
	}
	if _, err := permission.ForRedis(permission.Client, "turnpike", "client", ""); err == nil {
		t.Error("a client gets a user of Redis")
	}
	if _, err := permission.ForRedis(permission.Worker, "turnpike", "a b", ""); err == nil {
		t.Error("a user's name has a space")
	}
}
