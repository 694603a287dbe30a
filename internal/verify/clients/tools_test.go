//go:build clients

package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nkeys"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

const prefix = "tp"

// try is the timeout of a request that is repeated: one lost by a broken connection gets no reply.
const try = time.Second

// casesFile is clients/cases/tools.json.
type casesFile struct {
	Schemas      map[string]any    `json:"schemas"`
	Descriptions map[string]string `json:"descriptions"`
	Calls        []struct {
		Name      string          `json:"name"`
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Body      string          `json:"body"`

		Content any             `json:"content"`
		Length  int             `json:"length"`
		Pending bool            `json:"pending"`
		Images  []toolkit.Image `json:"images"`
		Files   []toolkit.File  `json:"files"`
		Code    string          `json:"code"`
		Error   []string        `json:"error"`
		First   string          `json:"first"`
	} `json:"calls"`
	Progress struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Reports   []string        `json:"reports"`
		Content   string          `json:"content"`
	} `json:"progress"`
}

func cases(t *testing.T) (c casesFile) {
	t.Helper()
	data, err := os.ReadFile(root + "clients/cases/tools.json")
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// broker is a NATS server and a connection of a caller.
type broker struct {
	server *natsserver.Server
	nc     *nats.Conn
	served int // number of started instances
}

func newBroker(t *testing.T, set func(*natsserver.Options), options ...nats.Option) *broker {
	t.Helper()
	server := testbed.NATSWith(t, func(o *natsserver.Options) {
		o.JetStream = false
		set(o)
	})
	nc, err := nats.Connect(server.ClientURL(), append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return &broker{server: server, nc: nc}
}

func plain(*natsserver.Options) {}

// serve starts an instance of the tools of the cases, and returns when it can be discovered.
func (b *broker) serve(t *testing.T, l language, env ...string) *process {
	t.Helper()
	b.served++
	p := start(t, l, "case_tools", append([]string{"TURNPIKE_NATS_URL=" + b.server.ClientURL(), "TURNPIKE_PREFIX=" + prefix}, env...)...)
	for len(b.instances(t)) < b.served { // on a busy machine, a query may miss some
		select {
		case <-p.ended:
			t.Fatalf("the program ended: %v", p.err)
		default:
		}
	}
	return p
}

// instances returns the ids of the services that serve the last tool.
func (b *broker) instances(t *testing.T) (ids []string) {
	t.Helper()
	infos, err := toolkit.AskServices[micro.Info](t.Context(), b.nc, prefix, "", micro.InfoVerb)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if i.Name == "ended" {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// call is a call in flight.
type call struct {
	inbox string
	sub   *nats.Subscription
	nc    *nats.Conn
}

// send sends a request with heartbeats, and returns once an instance has it.
func (b *broker) send(t *testing.T, name string, c toolkit.Call) *call {
	t.Helper()
	if c.Arguments == nil {
		c.Arguments = json.RawMessage("{}")
	}
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	inbox := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.nc.PublishMsg(&nats.Msg{Subject: toolkit.Subject(prefix, name), Reply: inbox, Data: body, Header: nats.Header{toolkit.HeartbeatHeader: {"100"}}}); err != nil {
		t.Fatal(err)
	}
	made := &call{inbox, sub, b.nc}
	if m := made.next(t); m.Header.Get(toolkit.HeartbeatHeader) != "100" || len(m.Data) > 0 {
		t.Fatalf("the first message is not a heartbeat: %v %s", m.Header, m.Data)
	}
	return made
}

// begin is send for a tool that reports progress when it begins, and returns once it has begun.
func (b *broker) begin(t *testing.T, name string, c toolkit.Call) *call {
	t.Helper()
	made := b.send(t, name, c)
	for made.next(t).Header.Get(toolkit.ProgressHeader) == "" {
	}
	return made
}

func (c *call) next(t *testing.T) *nats.Msg {
	t.Helper()
	m, err := c.sub.NextMsg(testbed.Patience)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// reply returns the reply, and the progress reported before it.
func (c *call) reply(t *testing.T) (toolkit.Reply, []string) {
	t.Helper()
	var reports []string
	for {
		m := c.next(t)
		if m.Header.Get(toolkit.HeartbeatHeader) != "" {
			if raw := m.Header.Get(toolkit.ProgressHeader); raw != "" {
				var text string
				if err := json.Unmarshal([]byte(raw), &text); err != nil {
					t.Fatal(err)
				}
				reports = append(reports, text)
			}
			continue
		}
		var r toolkit.Reply
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Fatalf("%s: %v", m.Data, err)
		}
		return r, reports
	}
}

// A call with the same arguments has the same result in every language.
func TestCalls(t *testing.T) {
	t.Parallel()
	each(t, languages, func(t *testing.T, l language) {
		b := newBroker(t, plain)
		b.serve(t, l)
		for _, c := range cases(t).Calls {
			body := c.Body
			if c.Arguments != nil {
				body = fmt.Sprintf(`{"arguments":%s}`, c.Arguments)
			}
			m, err := b.nc.RequestWithContext(t.Context(), toolkit.Subject(prefix, c.Tool), []byte(body))
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			var r struct {
				Content any             `json:"content"`
				Images  []toolkit.Image `json:"images"`
				Files   []toolkit.File  `json:"files"`
				Pending bool            `json:"pending"`
				Error   string          `json:"error"`
			}
			if err := json.Unmarshal(m.Data, &r); err != nil {
				t.Errorf("%s: %.200s: %v", c.Name, m.Data, err)
			}
			if code := m.Header.Get(micro.ErrorCodeHeader); code != c.Code {
				t.Errorf("%s: code %q, want %q: %.200s", c.Name, code, c.Code, m.Data)
			}
			first := m.Header.Get(micro.ErrorHeader)
			if (first != "") != (c.Code != "") || c.First != "" && first != c.First {
				t.Errorf("%s: the header is %q", c.Name, first)
			}
			for _, text := range c.Error {
				if !strings.Contains(r.Error, text) {
					t.Errorf("%s: error %q, want it to contain %q", c.Name, r.Error, text)
				}
			}
			if text, _ := r.Content.(string); c.Length > 0 && len(text) == c.Length {
				continue
			}
			if !cmp.Equal(r.Content, c.Content) || c.Length > 0 || r.Pending != c.Pending || !cmp.Equal(r.Images, c.Images) || !cmp.Equal(r.Files, c.Files) {
				t.Errorf("%s: %.200s", c.Name, m.Data)
			}
		}
	})
}

// Workers, `turnpike tools` and `nats micro` find a tool with its schema and its statistics.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	each(t, languages, func(t *testing.T, l language) {
		b := newBroker(t, plain)
		b.serve(t, l)
		for _, body := range []string{`{"arguments":{"name":"Ada"}}`, `{}`} {
			if _, err := b.nc.RequestWithContext(t.Context(), toolkit.Subject(prefix, "greet"), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		c := cases(t)
		found := map[string]natstool.Service{}
		// A service counts a request after it has answered, and on a busy machine an answer may arrive later
		// than Discover waits.
		testbed.Eventually(t, "all tools, and two requests", func() error {
			services, err := natstool.Discover(t.Context(), b.nc, prefix, "")
			for _, s := range services {
				found[s.Name] = s
			}
			for name := range c.Schemas {
				if _, ok := found[name]; !ok || err != nil {
					return fmt.Errorf("tool %s is not found, %w", name, err)
				}
			}
			if i := found["greet"].Instances; len(i) != 1 || i[0].Requests != 2 {
				return fmt.Errorf("instances of greet: %+v", i)
			}
			return nil
		})
		for name, want := range c.Schemas {
			var got any
			if err := json.Unmarshal(found[name].Schema, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("schema of %s:\n%s", name, diff)
			}
			if found[name].Description != c.Descriptions[name] {
				t.Errorf("description of %s: %q", name, found[name].Description)
			}
		}
		if i := found["greet"].Instances; len(i) != 1 || i[0].Version != "1.0.0" || i[0].Started.IsZero() || i[0].Requests != 2 || i[0].Errors != 1 {
			t.Errorf("instances: %+v", i)
		}
		for _, subject := range []string{"$SRV.PING", "$SRV.PING.greet", "$SRV.STATS.greet." + found["greet"].Instances[0].ID} {
			if _, err := b.nc.RequestWithContext(t.Context(), subject, nil); err != nil {
				t.Errorf("%s: %v", subject, err)
			}
		}
	})
}

// Progress reaches the caller in order and before the result. A slow call does not delay others.
func TestProgress(t *testing.T) {
	t.Parallel()
	each(t, languages, func(t *testing.T, l language) {
		b := newBroker(t, plain)
		p := b.serve(t, l)
		held := b.send(t, "hold", toolkit.Call{IdempotencyKey: "k1"})
		c := cases(t).Progress
		r, reports := b.send(t, c.Tool, toolkit.Call{Arguments: c.Arguments}).reply(t)
		if string(r.Content) != `"`+c.Content+`"` {
			t.Errorf("content %s", r.Content)
		}
		if diff := cmp.Diff(c.Reports, reports); diff != "" {
			t.Errorf("progress:\n%s", diff)
		}
		// A caller that cannot tell progress from a reply gets the reply only.
		m, err := b.nc.RequestWithContext(t.Context(), toolkit.Subject(prefix, c.Tool), fmt.Appendf(nil, `{"arguments":%s}`, c.Arguments))
		if err != nil || !strings.Contains(string(m.Data), c.Content) {
			t.Errorf("without heartbeats: %v, %v", m, err)
		}
		p.say(t, "release")
		if r, _ := held.reply(t); string(r.Content) != `"k1"` {
			t.Errorf("the blocked call: %s", r.Content)
		}
	})
}

// A call ends when its caller cancels it or its deadline passes, without a reply.
func TestCancellation(t *testing.T) {
	t.Parallel()
	each(t, languages, func(t *testing.T, l language) {
		b := newBroker(t, plain)
		b.serve(t, l)
		deadline := time.Now().Add(5 * time.Second).UTC() // the calls must have begun by then
		calls := []*call{
			b.begin(t, "endless", toolkit.Call{IdempotencyKey: "deadline", Deadline: deadline}),
			b.begin(t, "endless_thread", toolkit.Call{IdempotencyKey: "deadline in a thread", Deadline: deadline}),
			b.begin(t, "endless", toolkit.Call{IdempotencyKey: "cancelled"}),
			b.begin(t, "endless_thread", toolkit.Call{IdempotencyKey: "cancelled in a thread"}),
		}
		for _, c := range calls[2:] {
			if err := b.nc.Publish(c.inbox+toolkit.CancelSuffix, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"cancelled", "cancelled in a thread", "deadline", "deadline in a thread"}
		testbed.Eventually(t, "all calls are cancelled", func() error {
			r, _ := b.send(t, "ended", toolkit.Call{}).reply(t)
			var got []string
			if err := json.Unmarshal(r.Content, &got); err != nil {
				return err
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return fmt.Errorf("cancelled are %q", got)
			}
			return nil
		})
		for i, c := range calls {
			for n, _, _ := c.sub.Pending(); n > 0; n, _, _ = c.sub.Pending() {
				if m := c.next(t); m.Header.Get(toolkit.HeartbeatHeader) == "" {
					t.Errorf("call %d got a reply: %v %s", i, m.Header, m.Data)
				}
			}
		}
	})
}

// After SIGTERM an instance can no longer be found or called, answers its call in flight, and exits
// successfully.
func TestDrain(t *testing.T) {
	t.Parallel()
	each(t, languages, func(t *testing.T, l language) {
		b := newBroker(t, plain)
		p := b.serve(t, l)
		held := b.send(t, "hold", toolkit.Call{IdempotencyKey: "k1"})
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		testbed.Eventually(t, "no instance accepts calls", func() error {
			for _, subject := range []string{toolkit.Subject(prefix, "greet"), toolkit.Subject(prefix, "hold"), "$SRV.PING.hold"} {
				if _, err := b.nc.Request(subject, []byte(`{}`), try); !errors.Is(err, nats.ErrNoResponders) {
					return errors.New(subject + " is served")
				}
			}
			return nil
		})
		select {
		case <-p.ended:
			t.Fatal("the program ended before its call")
		default:
		}
		p.say(t, "release")
		if r, _ := held.reply(t); string(r.Content) != `"k1"` {
			t.Errorf("reply: %s", r.Content)
		}
		p.succeeds(t)
	})
}

// An instance reconnects when the server is back, and delivers the result of a call in flight.
func TestReconnect(t *testing.T) {
	t.Parallel()
	each(t, languages, func(t *testing.T, l language) {
		port, err := devserver.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		fixed := func(o *natsserver.Options) { o.Port = port }
		b := newBroker(t, fixed)
		p := b.serve(t, l)
		held := b.send(t, "hold", toolkit.Call{IdempotencyKey: "k1"})
		b.server.Shutdown()
		b.server.WaitForShutdown()
		testbed.NATSWith(t, func(o *natsserver.Options) { o.JetStream = false; fixed(o) })
		testbed.Eventually(t, "the tool answers", func() error {
			_, err := b.nc.Request(toolkit.Subject(prefix, "greet"), []byte(`{"arguments":{"name":"Ada"}}`), try)
			return err
		})
		p.say(t, "release")
		if r, _ := held.reply(t); string(r.Content) != `"k1"` {
			t.Errorf("reply: %s", r.Content)
		}
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p.succeeds(t)
	})
}

// A program that gets SIGTERM while the server is away ends well, also if it still has a call. It says in one line each
// that the connection was lost, and that it is back.
func TestDrainWithoutServer(t *testing.T) {
	t.Parallel()
	each(t, languages, func(t *testing.T, l language) {
		if l.name == "Go" {
			t.Skip("programs in Go log and end by their own rules") // pkg/toolkit takes a connection of the program
		}
		port, err := devserver.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		fixed := func(o *natsserver.Options) { o.Port = port }
		b := newBroker(t, fixed)
		p := b.serve(t, l)
		stop := func() {
			b.server.Shutdown()
			b.server.WaitForShutdown()
		}
		lines := func(text string, want int) {
			t.Helper()
			testbed.Eventually(t, text, func() error {
				if n := strings.Count(p.output(), text); n != want {
					return fmt.Errorf("%d lines, want %d", n, want)
				}
				return nil
			})
		}
		stop()
		lines("connection to NATS lost", 1)
		b.server = testbed.NATSWith(t, func(o *natsserver.Options) { o.JetStream = false; fixed(o) })
		lines("connected to NATS again", 1)
		testbed.Eventually(t, "the tool answers", func() error {
			_, err := b.nc.Request(toolkit.Subject(prefix, "greet"), []byte(`{"arguments":{"name":"Ada"}}`), try)
			return err
		})
		b.send(t, "hold", toolkit.Call{IdempotencyKey: "k1"})
		stop()
		lines("connection to NATS lost", 2)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p.say(t, "release")
		p.succeeds(t)
	})
}

// The call of a killed instance is repeated under its key if the tool is idempotent. Otherwise the model reads
// that its outcome is unknown (I4).
func TestInstanceDies(t *testing.T) {
	t.Parallel()
	each(t, languages, func(t *testing.T, l language) {
		b := newBroker(t, plain)
		dies := b.serve(t, l)
		caller := natstool.New(b.nc, prefix) // with slow heartbeats: no live instance is taken for dead
		signs, err := b.nc.SubscribeSync("_INBOX.>")
		if err != nil {
			t.Fatal(err)
		}
		results := map[bool]chan tool.Result{true: make(chan tool.Result, 1), false: make(chan tool.Result, 1)}
		for idempotent, result := range results {
			go func() { // ends with the call
				r, err := caller.Call(t.Context(), tool.Call{Name: "hold", IdempotencyKey: "k1", Idempotent: idempotent})
				if err != nil {
					r = tool.Error(err.Error())
				}
				result <- r
			}()
		}
		for seen := map[string]bool{}; len(seen) < 2; {
			m, err := signs.NextMsg(testbed.Patience)
			if err != nil {
				t.Fatal(err)
			}
			if m.Header.Get(toolkit.HeartbeatHeader) != "" {
				seen[m.Subject] = true
			}
		}
		lives := b.serve(t, l)
		lives.say(t, "release")
		if err := dies.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if r := <-results[true]; r.IsError || r.Content != "k1" {
			t.Errorf("idempotent: %+v", r)
		}
		if r := <-results[false]; !r.IsError || !strings.Contains(r.Content, "outcome is unknown") {
			t.Errorf("not idempotent: %+v", r)
		}
	})
}

// Tools log in with the credentials in the environment, and serve a tenant.
func TestLogin(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	authority := testbed.NewAuthority(t)
	cert, key := authority.Issue("tool")
	file := t.TempDir() + "/secret"
	if err := os.WriteFile(file, []byte("of-the-tool\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	users := func(o *natsserver.Options) {
		o.Users = []*natsserver.User{{Username: "tool", Password: "of-the-tool"}}
		o.Nkeys = []*natsserver.NkeyUser{{Nkey: public}}
	}
	user := nats.UserInfo("tool", "of-the-tool")
	for name, c := range map[string]struct {
		set     func(*natsserver.Options)
		options []nats.Option
		env     []string
	}{
		"password": {users, []nats.Option{user}, []string{"TURNPIKE_NATS_USER=tool", "TURNPIKE_NATS_PASSWORD_FILE=" + file}},
		"nkey":     {users, []nats.Option{user}, []string{"TURNPIKE_NATS_NKEY=" + string(seed)}},
		"certificate": {func(o *natsserver.Options) { o.TLSConfig, o.TLSVerify = authority.ServerConfig(), true }, []nats.Option{nats.RootCAs(authority.File), nats.ClientCert(cert, key)}, []string{
			"TURNPIKE_NATS_CA_FILE=" + authority.File, "TURNPIKE_NATS_CERT_FILE=" + cert, "TURNPIKE_NATS_KEY_FILE=" + key,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, languages, func(t *testing.T, l language) {
				b := newBroker(t, c.set, c.options...)
				url := "TURNPIKE_NATS_URL=" + b.server.ClientURL()
				p := start(t, l, "case_tools", append([]string{url, "TURNPIKE_PREFIX=" + prefix, "TURNPIKE_TENANT=acme"}, c.env...)...)
				testbed.Eventually(t, "the tenant's tool answers", func() error {
					select {
					case <-p.ended:
						t.Fatalf("the program ended: %v", p.err)
					default:
					}
					_, err := b.nc.Request(toolkit.Subject(toolkit.Root(prefix, "acme"), "greet"), []byte(`{"arguments":{"name":"Ada"}}`), try)
					return err
				})
				testbed.Eventually(t, "the tenant's tools", func() error {
					if services, err := natstool.Discover(t.Context(), b.nc, prefix, "acme"); err != nil || len(services) < 10 {
						return fmt.Errorf("the tenant finds %d tools, %w", len(services), err)
					}
					return nil
				})
				if services, err := natstool.Discover(t.Context(), b.nc, prefix, ""); err != nil || len(services) > 0 {
					t.Errorf("the default tenant finds %d tools, %v", len(services), err)
				}
				// Without credentials the program exits with one line.
				p = start(t, l, "case_tools", url, "TURNPIKE_PREFIX="+prefix)
				<-p.ended
				if text := strings.TrimSpace(p.output()); p.err == nil || strings.Contains(text, "\n") {
					t.Errorf("without credentials it ended with %v and printed:\n%s", p.err, text)
				}
			})
		})
	}
}
