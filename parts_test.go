package turnpike_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

func TestFromEnv(t *testing.T) {
	for name, value := range map[string]string{
		"TURNPIKE_NATS_URL": "nats://n:4222", "TURNPIKE_REDIS_URL": "redis://r:6379", "TURNPIKE_PREFIX": "env", "TURNPIKE_NATS_REPLICAS": "3", "TURNPIKE_LEASE": "soon",
		"TURNPIKE_RETENTION": "completed: 30d", "TURNPIKE_NATS_USER": "u", "TURNPIKE_NATS_PASSWORD_FILE": "/p", "ACME_API_KEY": "secret",
		"TURNPIKE_EVENT_FEED": "on", "TURNPIKE_DEAD_MIB": "2", "TURNPIKE_MAX_RESULT": "many", "TURNPIKE_OIDC_ISSUER": "https://id.example.com", "TURNPIKE_BUS_KEYS_FILE": "/k",
	} {
		t.Setenv(name, value)
	}
	o := turnpike.Options{Prefix: "mine", Models: turnpike.Models{"acme": nil}}
	turnpike.FromEnv(&o)
	if o.NATS.URL != "nats://n:4222" || o.Redis.URL != "redis://r:6379" || o.Prefix != "mine" || o.NATS.Replicas != 3 || o.Retention.Completed == 0 ||
		o.NATS.Login.User.Text != "u" || !o.NATS.EventFeed || o.NATS.Limits.Dead != 2<<20 || o.NATS.Keys.File != "/k" || o.NATS.Login.Password.File != "/p" {
		t.Errorf("options %+v", o)
	}
	_, err := turnpike.Open(t.Context(), o)
	for _, want := range []string{`TURNPIKE_LEASE is "soon": set a duration such as 30s`, `TURNPIKE_MAX_RESULT is "many": set a whole number`, "OIDC.Issuer is \"https://id.example.com\" and OIDC.Audience is \"\""} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// FromEnv leaves a set field of OIDC as it is, also if it takes the issuer from the environment.
func TestFromEnvKeepsScopes(t *testing.T) {
	for name, value := range map[string]string{"ISSUER": "https://id.example.com", "AUDIENCE": "turnpike", "SCOPES": "openid,groups", "CLIENT_ID": "env"} {
		t.Setenv("TURNPIKE_OIDC_"+name, value)
	}
	o := turnpike.Options{OIDC: turnpike.OIDC{ClientID: "mine", Scopes: []string{"openid"}}}
	turnpike.FromEnv(&o)
	if o.OIDC.Issuer != "https://id.example.com" || o.OIDC.ClientID != "mine" || len(o.OIDC.Scopes) != 1 {
		t.Errorf("OIDC %+v", o.OIDC)
	}
}

// A program that does not call FromEnv does not depend on its environment.
func TestOptionsAloneCount(t *testing.T) {
	t.Setenv("TURNPIKE_NATS_URL", "nats://127.0.0.1:1")
	t.Setenv("TURNPIKE_PREFIX", "!")
	d := open(t, nil)
	put(t, d.Client, agents()...)
	if _, i, err := done(t.Context(), d.Client, turnpike.Submission{Agent: "plain", Input: "x"}); err != nil || i.Status != "completed" {
		t.Error(i.Status, err)
	}
}

// A program's own store and bus replace the servers.
func TestStoreAndBus(t *testing.T) {
	t.Parallel()
	for name, nats := range map[string]turnpike.NATS{"alone": {}, "store alone": {URL: testbed.NATSServer(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, func(o *turnpike.Options) {
				o.NATS, o.Store = nats, memstore.New(memstore.Config{})
				if nats.URL == "" {
					b := membus.New()
					t.Cleanup(func() { _ = b.Close() })
					o.Bus = b
				}
			})
			put(t, d.Client, agents()...)
			if _, i, err := done(t.Context(), d.Client, turnpike.Submission{Agent: "clerk", Input: "x"}); err != nil || i.Status != "completed" {
				t.Error(i.Status, err)
			}
		})
	}
	_, err := turnpike.Open(t.Context(), turnpike.Options{Bus: membus.New()})
	if err == nil || !strings.Contains(err.Error(), "Bus is set, but neither Store nor Redis.URL") {
		t.Errorf("Open = %v", err)
	}
}

// wrong is a store whose server has a fatal setting.
type wrong struct {
	*memstore.Store

	closed bool
}

func (*wrong) Check(context.Context) []state.Finding {
	return []state.Finding{{Name: "third store: disk", Fatal: true, Detail: "writes are lost", Remedy: "mount one that keeps them"}}
}

func (w *wrong) Close() error {
	w.closed = true
	return nil
}

// Open checks a program's own store like any other, and leaves it open.
func TestStoreIsChecked(t *testing.T) {
	t.Parallel()
	store := &wrong{Store: memstore.New(memstore.Config{})}
	b := membus.New()
	t.Cleanup(func() { _ = b.Close() })
	_, err := turnpike.Open(t.Context(), turnpike.Options{Store: store, Bus: b})
	if err == nil || !strings.Contains(err.Error(), "mount one that keeps them") || store.closed {
		t.Errorf("Open = %v, closed %v; want the remedy and an open store", err, store.closed)
	}
}

// A program's own connection is used and stays open.
func TestConnection(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	d, err := turnpike.Open(t.Context(), turnpike.Options{NATS: turnpike.NATS{Conn: nc}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if nc.Status() != nats.CONNECTED {
		t.Errorf("the connection is %s", nc.Status())
	}
}

// The log goes to the program's handler, with its levels.
func TestLogger(t *testing.T) {
	t.Parallel()
	var out lines
	d := open(t, func(o *turnpike.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	})
	put(t, d.Client, agents()...)
	if _, _, err := done(t.Context(), d.Client, turnpike.Submission{Agent: "plain", Input: "x"}); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "the worker starts", func() error {
		if !strings.Contains(out.String(), `level=INFO msg="worker started" worker=`) {
			return errors.New(out.String())
		}
		return nil
	})
	if strings.Contains(out.String(), "level=DEBUG") {
		t.Errorf("the log has lines of level debug:\n%s", out.String())
	}
}

// lines is a buffer for several goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A worker runs once. Stop waits for turns in flight until its context ends, and then releases them.
func TestWorkerStops(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	slow := turnpike.NewTool("slow", "", func(ctx context.Context, _ struct{}) (string, error) {
		close(begun)
		select {
		case <-time.After(testbed.Patience):
			t.Error("Stop waits for the turn although its context has ended")
			return "", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	d, err := turnpike.Open(t.Context(), turnpike.Options{NATS: turnpike.NATS{URL: testbed.NATSServer(t).URL()}, Tools: []turnpike.Tool{slow}, Models: turnpike.Models{"scripted": scriptedModel()}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	early, err := d.NewWorker(turnpike.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := early.Stop(t.Context()); err != nil {
		t.Errorf("Stop before Run: %v", err)
	}
	if err := early.Run(t.Context()); err != nil {
		t.Errorf("Run after Stop: %v", err)
	}
	w, err := d.NewWorker(turnpike.WorkerOptions{ShutdownGrace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	a := agentOf("slow", calls("slow", struct{}{}), model.Scripted{Text: "end"})
	a.Tools = turnpike.Use(slow)
	put(t, d.Client, a)
	r := submit(t, d.Client, turnpike.Submission{Agent: "slow", Input: "x"})
	<-begun
	if err := w.Ready(t.Context()); err != nil {
		t.Errorf("Ready: %v", err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("Run twice succeeds")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop = %v, want canceled", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	if i, err := r.Info(t.Context()); err != nil || i.Terminal() {
		t.Errorf("the run is %s, %v", i.Status, err)
	}
}

// A registry has the metrics of one gateway and of one worker: the error of a second one says so.
func TestSecondWithMetrics(t *testing.T) {
	t.Parallel()
	d, err := turnpike.Open(t.Context(), turnpike.Options{NATS: turnpike.NATS{URL: testbed.NATSServer(t).URL()}, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	for what, second := range map[string]func() error{
		"gateway": func() error { _, err := d.NewGateway(turnpike.GatewayOptions{Auth: turnpike.NoAuth()}); return err },
		"worker":  func() error { _, err := d.NewWorker(turnpike.WorkerOptions{}); return err },
	} {
		if err := second(); err != nil {
			t.Errorf("the first %s: %v", what, err)
		}
		if err := second(); err == nil || !strings.Contains(err.Error(), "the metrics of a "+what) {
			t.Errorf("the second %s: %v", what, err)
		}
	}
}

// The replies of NATS arrive below the prefix that the user may subscribe to.
func TestInbox(t *testing.T) {
	t.Parallel()
	url := testbed.NATSServer(t).URL()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	replies, err := nc.SubscribeSync("_mine.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	d, err := turnpike.Open(t.Context(), turnpike.Options{NATS: turnpike.NATS{URL: url, Login: turnpike.NATSLogin{Inbox: "_mine"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := nc.Flush(); err != nil { // the replies until now have arrived
		t.Fatal(err)
	}
	if n, _, err := replies.Pending(); n == 0 || err != nil {
		t.Errorf("%d replies arrived below the prefix, %v", n, err)
	}
}

// Gateways authenticate callers by the program's Auth.
func TestAuth(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	put(t, d.Client, agents()...)
	if _, err := d.NewGateway(turnpike.GatewayOptions{}); err == nil {
		t.Error("a gateway without Auth is created")
	}
	if _, err := d.NewGateway(turnpike.GatewayOptions{Auth: turnpike.AuthFunc(nil)}); err == nil {
		t.Error("a gateway with a nil AuthFunc is created")
	}
	if _, err := d.NewGateway(turnpike.GatewayOptions{Auth: turnpike.NoAuth(), WriteTimeout: -1}); err == nil || !strings.Contains(err.Error(), "GatewayOptions.WriteTimeout is -1ns") {
		t.Errorf("a gateway with a negative WriteTimeout: %v", err)
	}
	users := turnpike.AuthFunc(func(r *http.Request) (turnpike.Principal, error) {
		switch _, user, _ := strings.Cut(r.Header.Get("Authorization"), " "); user {
		case "":
			return turnpike.Principal{}, turnpike.ErrUnauthenticated
		case "broken":
			return turnpike.Principal{}, errors.New("the directory does not answer")
		default:
			return turnpike.Principal{Name: user, Roles: []turnpike.Role{"viewer"}}, nil
		}
	})
	nobody := dial(t, d, turnpike.GatewayOptions{Auth: users}, "")
	vera := dial(t, d, turnpike.GatewayOptions{Auth: users}, "vera")
	r, _, err := done(t.Context(), d.Client, turnpike.Submission{Agent: "plain", Input: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.RunByID(r.ID()).Info(t.Context()); !errors.Is(err, turnpike.ErrUnauthenticated) {
		t.Errorf("a stranger reads a run: %v", err)
	}
	if _, err := vera.RunByID(r.ID()).Info(t.Context()); err != nil {
		t.Errorf("a viewer reads a run: %v", err)
	}
	if _, err := vera.Submit(t.Context(), turnpike.Submission{Agent: "plain", Input: "x"}); !errors.Is(err, turnpike.ErrForbidden) {
		t.Errorf("a viewer submits: %v", err)
	}
	broken := dial(t, d, turnpike.GatewayOptions{Auth: users}, "broken")
	if _, err := broken.RunByID(r.ID()).Info(t.Context()); !errors.Is(err, turnpike.ErrUnavailable) {
		t.Errorf("without a directory: %v", err)
	}
}

// A principal without a role, or with a role that does not exist, has no access, and the error lists the roles.
func TestUnknownRoles(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	put(t, d.Client, agents()...)
	r, _, err := done(t.Context(), d.Client, turnpike.Submission{Agent: "plain", Input: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, roles := range [][]turnpike.Role{nil, {""}, {"aprover"}, {"Viewer"}, {"viewer", "aprover"}} {
		who := turnpike.Principal{Name: "vera", Roles: roles}
		remote := dial(t, d, turnpike.GatewayOptions{Auth: turnpike.AuthFunc(func(*http.Request) (turnpike.Principal, error) { return who, nil })}, "")
		for name, c := range map[string]*turnpike.Client{"in process": d.As(who), "over HTTP": remote} {
			if _, err := c.RunByID(r.ID()).Info(t.Context()); !errors.Is(err, turnpike.ErrForbidden) || !strings.Contains(err.Error(), "viewer, submitter, approver") {
				t.Errorf("%s, a principal with the roles %q reads a run: %v", name, roles, err)
			}
			for _, err := range c.RunByID(r.ID()).Events(t.Context(), 0) {
				if !errors.Is(err, turnpike.ErrForbidden) {
					t.Errorf("%s, a principal with the roles %q reads events: %v", name, roles, err)
				}
			}
		}
	}
}

// API keys work, and no header makes a caller the in-process principal.
func TestKeyAuth(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	put(t, d.Client, agents()...)
	g, err := d.NewGateway(turnpike.GatewayOptions{Auth: d.KeyAuth(), NoUI: true})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	defer server.Close()
	defer server.CloseClientConnections()
	open, err := d.NewGateway(turnpike.GatewayOptions{Auth: turnpike.NoAuth()})
	if err != nil {
		t.Fatal(err)
	}
	admin := httptest.NewServer(open)
	defer admin.Close()
	defer admin.CloseClientConnections()
	key, err := api.NewWithHTTP(admin.URL, admin.Client()).CreateKey(t.Context(), api.KeyRequest{Name: "vera", Roles: []string{"submitter"}})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]error{"": turnpike.ErrUnauthenticated, "in-process": turnpike.ErrUnauthenticated, "process:turnpike": turnpike.ErrUnauthenticated, key.Key: nil} {
		c, err := turnpike.Dial(server.URL, turnpike.DialOptions{Token: token, HTTP: server.Client()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Submit(t.Context(), turnpike.Submission{Agent: "plain", Input: "x"}); !errors.Is(err, want) {
			t.Errorf("token %.10q can submit: %v, want %v", token, err, want)
		}
	}
	resp, err := server.Client().Get(server.URL + "/ui/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("GET /ui/ = %d, want 404", resp.StatusCode)
	}
}

// A gateway is not made if the secret of its OpenID provider cannot be read; the error names the file and the remedy.
func TestKeyAuthWithoutItsSecret(t *testing.T) {
	t.Parallel()
	d := open(t, func(o *turnpike.Options) {
		o.OIDC = turnpike.OIDC{Issuer: "https://id.example.com", Audience: "turnpike", ClientSecret: turnpike.Secret{File: "/nope/secret"}}
	})
	_, err := d.NewGateway(turnpike.GatewayOptions{Auth: d.KeyAuth()})
	for _, want := range []string{"OIDC.ClientSecret.File", "/nope/secret", "name a file that this process may read"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewGateway = %v, want %q in it", err, want)
		}
	}
}

// foreignTransport is a transport that is not an *http.Transport.
type foreignTransport struct{ http.RoundTripper }

func TestDial(t *testing.T) {
	t.Parallel()
	if _, err := turnpike.Dial("localhost", turnpike.DialOptions{}); !errors.Is(err, turnpike.ErrInvalid) {
		t.Errorf("Dial = %v, want ErrInvalid", err)
	}
	foreign := turnpike.DialOptions{RootCAs: x509.NewCertPool(), HTTP: &http.Client{Transport: foreignTransport{}}}
	for _, url := range []string{"https://tp.example.com", "localhost"} {
		if _, err := turnpike.Dial(url, foreign); !errors.Is(err, turnpike.ErrInvalid) {
			t.Errorf("Dial(%q) with authorities and a transport of another type = %v, want ErrInvalid", url, err)
		}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c, err := turnpike.Dial(gone.URL, turnpike.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RunByID("run_01JD0000000000000000000000").Info(t.Context()); !errors.Is(err, turnpike.ErrUnavailable) {
		t.Errorf("Info = %v, want ErrUnavailable", err)
	}
	for name, answer := range map[string]http.HandlerFunc{
		"a proxy without its gateway": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<h1>Bad Gateway</h1>", http.StatusBadGateway)
		},
		"a connection that breaks": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"id":`))
		},
		"a connection that breaks within an error": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":`))
		},
	} {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		c, err := turnpike.Dial(server.URL, turnpike.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.RunByID("run_01JD0000000000000000000000").Info(t.Context()); !errors.Is(err, turnpike.ErrUnavailable) {
			t.Errorf("%s: Info = %v, want ErrUnavailable", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Submit(ctx, turnpike.Submission{Agent: "x", Input: "x"}); !errors.Is(err, context.Canceled) || errors.Is(err, turnpike.ErrUnavailable) {
		t.Errorf("Submit = %v, want canceled", err)
	}
}

// keyed is a model that answers with the key of its request.
type keyed struct{}

func (keyed) Generate(_ context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	return model.Response{Provider: "acme", Model: r.Model, Stop: model.StopEnd, Parts: []state.Part{{Type: state.PartText, Text: "key " + r.APIKey}}}, nil
}

// A worker has the API keys from its options and, after those, the keys from the environment that FromEnv
// found.
func TestKeys(t *testing.T) {
	t.Setenv("ACME_API_KEY", "env")
	o := turnpike.Options{NATS: turnpike.NATS{Conn: testbed.NATS(t)}, Models: turnpike.Models{"acme": keyed{}}}
	for _, test := range []struct {
		env  bool
		keys map[string]string
		want string
	}{{false, nil, "key "}, {true, nil, "key env"}, {true, map[string]string{"acme": "own"}, "key own"}} {
		o.Prefix = "keys-" + strings.TrimPrefix(test.want, "key ")
		if test.env {
			turnpike.FromEnv(&o)
		}
		d, err := turnpike.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.NewWorker(turnpike.WorkerOptions{Keys: test.keys})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(context.Background()) }()
		put(t, d.Client, turnpike.Agent{Name: "keyed", Model: turnpike.Model{Provider: "acme", Name: "m"}})
		text, err := turnpike.Do[string](t.Context(), d.Client, turnpike.Submission{Agent: "keyed", Input: "x"})
		if err != nil || text != test.want {
			t.Errorf("%q, %v, want %q", text, err, test.want)
		}
		if err := errors.Join(w.Stop(context.Background()), <-ended, d.Close()); err != nil {
			t.Error(err)
		}
	}
}
