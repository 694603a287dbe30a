package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/secret"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool/a2atool"
	"github.com/turnpike-dev/turnpike/pkg/tool/httptool"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

// core is in every canary. No escaping changes it, so whatever holds a canary in
// any form but base64 holds it.
const core = "c4n4ryQ7x9Zk2vTb"

// canaries are the secrets, with what URLs, JSON and HTML escape.
var canaries = map[string]string{
	"MODEL_KEY":   core + `+mo/d&"el%<k>=`,
	"HEADER_KEY":  core + `+he/a&"der%<k>=`,
	"QUERY_KEY":   core + `+qu/e&"ry%<k>=`,
	"A2A_TOKEN":   core + `+a2/a&"%<k>=`,
	"ALLOWED_KEY": core + "-allowed",
}

// What the processes themselves get in with.
const (
	natsPassword  = core + `+na/s&"%<k>=`
	redisPassword = core + "-redis"
)

// leak returns where a canary stands in a text, plainly or in base64, and -1 where
// none does.
func leak(text string) int {
	for lead := range 3 {
		b := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", lead) + core))
		if i := strings.Index(text, b[4:len(b)-2]); i >= 0 {
			return i
		}
	}
	return strings.Index(text, core)
}

// echo answers with everything that came: headers, query and body, plainly, in JSON
// and in base64. The path says with which status.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var all strings.Builder
	for name, values := range r.Header {
		for _, v := range values {
			fmt.Fprintf(&all, "%s: %s\n", name, v)
			w.Header().Set("X-Echo-"+name, v)
		}
	}
	fmt.Fprintf(&all, "%s\n%s\n%s\n", r.URL.RawQuery, r.URL.Query(), body)
	inJSON, _ := json.Marshal(map[string]any{"headers": r.Header, "query": r.URL.Query()})
	said := all.String() + string(inJSON) + base64.StdEncoding.EncodeToString([]byte(r.Header.Get("Authorization"))) +
		base64.URLEncoding.EncodeToString([]byte(r.URL.RawQuery))
	switch {
	case strings.HasSuffix(r.URL.Path, "/fails"):
		w.WriteHeader(http.StatusForbidden)
	case strings.HasSuffix(r.URL.Path, "/elsewhere"):
		w.Header().Set("Location", "http://elsewhere.example/?"+r.URL.RawQuery)
		w.WriteHeader(http.StatusFound)
	case strings.HasSuffix(r.URL.Path, "/status"):
		raw(w, "HTTP/1.1 403 "+r.Header.Get("Authorization")+"\r\nContent-Length: 0\r\n\r\n")
		return
	case strings.HasSuffix(r.URL.Path, "/garbage"):
		raw(w, r.Header.Get("Authorization")+"\r\n\r\n")
		return
	case strings.HasSuffix(r.URL.Path, "/picture"):
		w.Header().Set("Content-Type", "image/png")
	case strings.HasSuffix(r.URL.Path, "/bytes"):
		w.Header().Set("Content-Type", "application/"+r.Header.Get("X-Key"))
		said = "\xff\xfe" + said
	}
	_, _ = io.WriteString(w, said)
}

// raw answers as no proper server does.
func raw(w http.ResponseWriter, answer string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, answer)
	_ = conn.Close()
}

// betray is a model server that says what key it got wherever a model may say
// something, in pieces, and ends in the middle if so asked.
func betray(w http.ResponseWriter, r *http.Request, key string) {
	send := func(event string, format string, values ...any) {
		for i, v := range values {
			b, _ := json.Marshal(v)
			values[i] = string(b)
		}
		if event != "" {
			fmt.Fprintf(w, "event: %s\n", event)
		}
		fmt.Fprintf(w, "data: "+format+"\n\n", values...)
		_ = http.NewResponseController(w).Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	pieces := []string{"It is ", key[:3], key[3:12], key[12:], " or " + url.QueryEscape(key)}
	arguments, _ := json.Marshal(map[string]string{"key": key})
	cut := strings.HasPrefix(r.URL.Path, "/cut")
	if strings.HasSuffix(r.URL.Path, "/messages") {
		send("message_start", `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":%s,"content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`, key)
		for i, kind := range []string{"thinking", "text"} {
			send("content_block_start", `{"type":"content_block_start","index":%s,"content_block":{"type":%s,%s:"","signature":""}}`, i, kind, kind)
			for _, p := range pieces {
				send("content_block_delta", `{"type":"content_block_delta","index":%s,"delta":{"type":%s,%s:%s}}`, i, kind+"_delta", kind, p)
			}
			if kind == "thinking" {
				send("content_block_delta", `{"type":"content_block_delta","index":%s,"delta":{"type":"signature_delta","signature":%s}}`, i, key)
			}
			if cut && kind == "text" {
				return
			}
			send("content_block_stop", `{"type":"content_block_stop","index":%s}`, i)
		}
		send("content_block_start", `{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c1","name":%s,"input":{}}}`, key)
		for _, p := range []string{string(arguments[:15]), string(arguments[15:])} {
			send("content_block_delta", `{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":%s}}`, p)
		}
		send("content_block_stop", `{"type":"content_block_stop","index":2}`)
		send("message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`)
		send("message_stop", `{"type":"message_stop"}`)
		return
	}
	if strings.HasSuffix(r.URL.Path, ":streamGenerateContent") {
		part := func(format string, values ...any) {
			send("", `{"modelVersion":%s,"candidates":[{"index":0,"content":{"role":"model","parts":[`+format+`]}}]}`, append([]any{key}, values...)...)
		}
		for _, thought := range []bool{true, false} {
			for _, p := range pieces {
				part(`{"text":%s,"thought":%s}`, p, thought)
			}
			part(`{"text":"","thought":%s,"thoughtSignature":%s}`, thought, []byte(key))
		}
		if cut {
			return
		}
		part(`{"functionCall":{"id":"c1","name":%s,"args":%s}}`, key, json.RawMessage(arguments))
		send("", `{"candidates":[{"index":0,"finishReason":"STOP"}]}`)
		return
	}
	const chunk = `{"id":"x","object":"chat.completion.chunk","model":%s,"choices":[{"index":0,"delta":`
	for _, field := range []string{"reasoning_content", "content"} {
		for _, p := range pieces {
			send("", chunk+`{%s:%s}}]}`, key, field, p)
		}
	}
	if cut {
		return
	}
	send("", chunk+`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":%s,"arguments":%s}}]}}]}`, key, key, string(arguments[:15]))
	send("", chunk+`{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}}]}`, key, string(arguments[15:]))
	send("", chunk+`{},"finish_reason":"tool_calls"}]}`, key)
	send("", "[DONE]")
}

// refuse is a model server that takes no key and tells everybody which one it got.
func refuse(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key") + r.Header.Get("X-Goog-Api-Key")
	w.Header().Set("X-Request-Id", key)
	w.Header().Set("Content-Type", "application/json")
	status, _ := json.Marshal(map[string]any{"error": map[string]any{
		"type": "authentication_error", "code": "invalid_api_key",
		"message": "Incorrect API key: " + key + ", " + url.QueryEscape(key) + ", " + base64.StdEncoding.EncodeToString([]byte(key)),
	}})
	switch {
	case strings.HasPrefix(r.URL.Path, "/said"), strings.HasPrefix(r.URL.Path, "/cut"):
		betray(w, r, strings.TrimPrefix(key, "Bearer "))
	case strings.HasPrefix(r.URL.Path, "/elsewhere"):
		w.Header().Set("Location", "http://elsewhere.example/"+url.PathEscape(key))
		w.WriteHeader(http.StatusTemporaryRedirect)
	case strings.HasPrefix(r.URL.Path, "/status"):
		raw(w, "HTTP/1.1 403 "+key+"\r\nContent-Length: 0\r\n\r\n")
	case strings.HasPrefix(r.URL.Path, "/garbage"):
		raw(w, key+"\r\n\r\n")
	case strings.HasPrefix(r.URL.Path, "/page"):
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html><body>bad gateway, headers were "+key+"</body></html>")
	case strings.HasPrefix(r.URL.Path, "/stream"):
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: error\ndata: %s\n\n", status)
	default:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write(status)
	}
}

// parrot is a remote agent that answers with the token that it was called with.
type parrot struct{ token func() string }

func (p parrot) Execute(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("your token is "+p.token())), nil)
	}
}

func (parrot) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// servers starts everything that gets to see a secret.
func servers(t *testing.T) (echoes, models, allowed, agents *httptest.Server) {
	t.Helper()
	mock, err := mockmodel.New(mockmodel.Config{
		APIKey: canaries["ALLOWED_KEY"], Scripts: []mockmodel.Script{{Responses: []mockmodel.Response{{Scripted: model.Scripted{Text: "hello"}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var token string
	mux := http.NewServeMux()
	agents = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		token = r.Header.Get("Authorization")
		mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(parrot{func() string { mu.Lock(); defer mu.Unlock(); return token }})))
	mux.HandleFunc("/bad"+a2asrv.WellKnownAgentCardPath, echo)
	mux.HandleFunc("/status"+a2asrv.WellKnownAgentCardPath, func(w http.ResponseWriter, r *http.Request) {
		raw(w, "HTTP/1.1 403 "+r.Header.Get("Authorization")+"\r\nContent-Length: 0\r\n\r\n")
	})
	mux.HandleFunc("/moved"+a2asrv.WellKnownAgentCardPath, func(w http.ResponseWriter, r *http.Request) {
		a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{Name: "moved", SupportedInterfaces: []*a2a.AgentInterface{
			a2a.NewAgentInterface("http://elsewhere.example/"+url.PathEscape(r.Header.Get("Authorization")), a2a.TransportProtocolJSONRPC),
		}}).ServeHTTP(w, r)
	})
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "parrot", SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(agents.URL+"/rpc", a2a.TransportProtocolJSONRPC)},
	}))
	echoes, models, allowed = httptest.NewServer(http.HandlerFunc(echo)), httptest.NewServer(http.HandlerFunc(refuse)), httptest.NewServer(mock)
	for _, s := range []*httptest.Server{echoes, models, allowed, agents} {
		t.Cleanup(s.Close)
	}
	return echoes, models, allowed, agents
}

// synced is a buffer for many writers.
type synced struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *synced) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Secrets are resolved at the moment of a call and stay there: whoever echoes one
// does not get it into state, events, logs, traces, metrics or answers.
func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	echoes, models, allowed, agents := servers(t)
	secrets := t.TempDir()
	for name, value := range canaries {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]string{} // what is searched, by where it was
	var logs, wire, monitored synced

	redisURL := strings.Replace(testbed.RedisProcess(t, "--requirepass", redisPassword).URL, "//", "//:"+redisPassword+"@", 1)
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	monitor, err := net.Dial("tcp", options.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	if _, err := fmt.Fprintf(monitor, "AUTH %s\r\nMONITOR\r\n", redisPassword); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(&monitored, monitor) }()

	natsURL := "nats://site:" + url.PathEscape(natsPassword) + "@" + startNATS(t)
	conn, err := natsbus.Connect(natsURL, "secrets")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Subscribe("secrets.>", func(m *nats.Msg) { fmt.Fprintf(&wire, "%s %v %s\n", m.Subject, m.Header, m.Data) }); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	registry := prometheus.NewRegistry()
	spans := tracetest.NewSpanRecorder()
	site, err := app.OpenOn(ctx, app.Config{RedisURL: redisURL, Prefix: "secrets", Replicas: 1}, conn, zerolog.New(&logs).Level(zerolog.DebugLevel))
	if err != nil {
		t.Fatal(err)
	}
	defer site.Close()
	guard, err := httptool.NewGuard([]string{"127.0.0.0/8", strings.TrimPrefix(echoes.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(site.Store, site.Bus, worker.Config{
		ID: "w", SecretsDir: secrets, Logger: site.Log, Registry: registry, HTTPTools: httptool.New(guard), RemoteAgents: a2atool.New(guard.Client()),
		Tracer:    sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		Providers: map[string]model.Provider{"scripted": scripted.New(), "openai": openai.New(openai.Config{}), "anthropic": anthropic.New(anthropic.Config{}), "gemini": gemini.New(gemini.Config{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	running.Go(func() { _ = site.Serve(ctx, listener, registry) })
	defer running.Wait()
	defer cancel()
	base := "http://" + listener.Addr().String()
	c := client.New(base)

	// Agents that use every secret where servers repeat it.
	tool := func(name, path string) string {
		return fmt.Sprintf(`{"name": %q, "kind": "http", "url": "%s/%s?k=secret://QUERY_KEY", "idempotent": true,
			"query": {"key": "secret://QUERY_KEY"}, "headers": {"Authorization": "Bearer secret://HEADER_KEY", "X-Key": "secret://HEADER_KEY"}}`, name, echoes.URL, path)
	}
	tools := strings.Join([]string{
		tool("echo", "fine"), tool("fails", "fails"), tool("elsewhere", "elsewhere"), tool("bytes", "bytes"),
		tool("status", "status"), tool("garbage", "garbage"), tool("picture", "picture"),
		`{"name": "gone", "kind": "http", "url": "http://127.0.0.1:1/?k=secret://QUERY_KEY", "headers": {"X-Key": "secret://HEADER_KEY"}}`,
		fmt.Sprintf(`{"name": "parrot", "kind": "a2a", "url": %q, "token": "secret://A2A_TOKEN"}`, agents.URL),
		fmt.Sprintf(`{"name": "bad", "kind": "a2a", "url": "%s/bad", "token": "secret://A2A_TOKEN"}`, agents.URL),
		fmt.Sprintf(`{"name": "refusing", "kind": "a2a", "url": "%s/status", "token": "secret://A2A_TOKEN"}`, agents.URL),
		fmt.Sprintf(`{"name": "moved", "kind": "a2a", "url": "%s/moved", "token": "secret://A2A_TOKEN"}`, agents.URL),
	}, ", ")
	definitions := map[string]string{
		"tools": `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"name": "echo"}, {"name": "fails"}, {"name": "elsewhere"},
			{"name": "bytes"}, {"name": "gone"}, {"name": "status"}, {"name": "garbage"}, {"name": "picture"},
			{"name": "parrot", "arguments": {"task": "x"}}, {"name": "bad", "arguments": {"task": "x"}}, {"name": "refusing", "arguments": {"task": "x"}}, {"name": "moved", "arguments": {"task": "x"}}]}, {"text": "done"}]}, "tools": [` + tools + `]}`,
		"allowed": fmt.Sprintf(`{"model": {"provider": "openai", "name": "m", "base_url": "%s/v1", "api_key": "secret://ALLOWED_KEY"}}`, allowed.URL),
	}
	for _, provider := range []string{"openai", "anthropic", "gemini"} {
		for _, way := range []string{"json", "page", "stream", "said", "cut", "elsewhere", "status", "garbage"} {
			definitions[provider+"-"+way] = fmt.Sprintf(`{"model": {"provider": %q, "name": "m", "base_url": "%s/%s", "api_key": "secret://MODEL_KEY",
				"fallback": [{"provider": "scripted", "responses": [{"text": "instead"}]}]}}`, provider, models.URL, way)
			definitions[provider+"-"+way+"-alone"] = fmt.Sprintf(`{"model": {"provider": %q, "name": "m", "base_url": "%s/%s", "api_key": "secret://MODEL_KEY"}, "loop": {"type": "react", "max_turns": 2}, "limits": {"deadline": "5s"}}`,
				provider, models.URL, way)
		}
	}
	runs := map[string]string{}
	for name, definition := range definitions {
		if _, err := c.PutAgent(ctx, name, []byte(definition)); err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"agent": %q, "input": "hello", "stream": "deltas"}`, name)
		resp, err := http.Post(base+"/v1/runs", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var run struct {
			ID string `json:"id"`
		}
		err = json.NewDecoder(resp.Body).Decode(&run)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		runs[name] = run.ID
	}
	for name, id := range runs {
		ended, err := c.Wait(ctx, id)
		if err == nil && ended.Status == string(state.Waiting) {
			_, err = c.Cancel(ctx, id, "seen enough")
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The events first: they end when the run has.
		for _, path := range []string{"/events", "", "/messages?view=full", "/messages", "/turns"} {
			found[name+path] = fetch(t, base+"/v1/runs/"+id+path)
		}
		found[name+" definition"] = fetch(t, base+"/v1/agents/"+name)
	}
	for _, where := range []string{"tools/messages", "openai-json-alone", "openai-said/messages", "anthropic-said/messages", "gemini-said/messages", "gemini-cut/messages?view=full", "openai-cut/messages?view=full", "anthropic-cut/messages?view=full"} {
		if !strings.Contains(found[where], secret.Hidden) {
			t.Errorf("%s: nothing was repeated, so the test proves nothing: %s", where, found[where])
		}
	}

	cancel()
	running.Wait()
	for _, span := range tracetest.SpanStubsFromReadOnlySpans(spans.Ended()) {
		found["spans"] += fmt.Sprintf("%s %v %v %v %v\n", span.Name, span.Attributes, span.Events, span.Status, span.Links)
	}
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	found["metrics"] = recorder.Body.String()
	found["redis"] = dumpRedis(t, options)
	found["streams"] = dumpStreams(t, conn)
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	found["logs"], found["commands of Redis"], found["messages of NATS"] = logs.String(), monitored.String(), wire.String()
	for where, text := range found {
		if text == "" {
			t.Errorf("%s: nothing to search", where)
		}
		if i := leak(text); i >= 0 {
			t.Errorf("%s has a secret in it: %s", where, text[max(0, i-200):min(len(text), i+200)])
		}
	}
}

// startNATS starts a server that asks for a password, and returns its address.
func startNATS(t *testing.T) string {
	t.Helper()
	return testbed.NATSWith(t, func(o *server.Options) { o.Username, o.Password = "site", natsPassword }).Addr().String()
}

// A process that does not get in says where, and not with what.
func TestCredentialsStayHidden(t *testing.T) {
	t.Parallel()
	for _, cfg := range []app.Config{
		{NATSURL: "nats://site:" + core + "@127.0.0.1:1"},
		{NATSURL: "nats://" + core + "@127.0.0.1:1,nats://site:" + core + "@127.0.0.1:2"},
		{NATSURL: "nats://site:" + core + "/x@127.0.0.1:1"},
		{NATSURL: "nats://site:" + core + "%zz@127.0.0.1:1"},
		{NATSURL: "site:" + core + "@127.0.0.1:port"},
		{NATSURL: "nats://site:" + core + "@" + startNATS(t)},
	} {
		if _, err := app.Open(t.Context(), cfg, "secrets"); err == nil || leak(err.Error()) >= 0 {
			t.Errorf("open %s: %v", cfg.NATSURL, err)
		}
		if findings := fmt.Sprint(app.Findings(t.Context(), cfg)); leak(findings) >= 0 {
			t.Errorf("findings of %s: %s", cfg.NATSURL, findings)
		}
	}
	at := "nats://site:" + url.PathEscape(natsPassword) + "@" + startNATS(t)
	for _, store := range []string{
		"redis://:" + core + "@127.0.0.1:1", "redis://:" + core + "/x@127.0.0.1:1", "redis://:" + core + "%zz@127.0.0.1", core + "@127.0.0.1:6379", "http://:" + core + "@127.0.0.1",
		"redis://:" + core + "@127.0.0.1:1?" + core, "redis://:" + core + "@" + strings.TrimPrefix(testbed.RedisProcess(t, "--requirepass", redisPassword).URL, "redis://"),
	} {
		cfg := app.Config{NATSURL: at, RedisURL: store, Prefix: "x", Replicas: 1}
		if _, err := app.Open(t.Context(), cfg, "secrets"); err == nil || leak(err.Error()) >= 0 {
			t.Errorf("open %s: %v", store, err)
		}
		if findings := fmt.Sprint(app.Findings(t.Context(), cfg)); leak(findings) >= 0 {
			t.Errorf("findings of %s: %s", store, findings)
		}
	}
}

func fetch(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%v %s", resp.Header, body)
}

// dumpRedis returns every key with its value.
func dumpRedis(t *testing.T, options *redis.Options) string {
	t.Helper()
	ctx := t.Context()
	rdb := redis.NewClient(options)
	defer rdb.Close()
	var all strings.Builder
	keys := rdb.Scan(ctx, 0, "*", 0).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		var value any
		switch typ := rdb.Type(ctx, key).Val(); typ {
		case "string":
			value = rdb.Get(ctx, key).Val()
		case "hash":
			value = rdb.HGetAll(ctx, key).Val()
		case "list":
			value = rdb.LRange(ctx, key, 0, -1).Val()
		case "set":
			value = rdb.SMembers(ctx, key).Val()
		case "zset":
			value = rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "stream":
			value = rdb.XRange(ctx, key, "-", "+").Val()
		default:
			t.Fatalf("key %s is a %s", key, typ)
		}
		fmt.Fprintf(&all, "%s %v\n", key, value)
	}
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// dumpStreams returns every message that a stream still has.
func dumpStreams(t *testing.T, conn *nats.Conn) string {
	t.Helper()
	ctx := t.Context()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		stream, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
			if m, err := stream.GetMsg(ctx, seq); err == nil {
				fmt.Fprintf(&all, "%s %s %v %s\n", info.Config.Name, m.Subject, m.Header, m.Data)
			}
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}
