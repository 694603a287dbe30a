package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/hook/natshook"
	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// echo returns everything it received: headers, query and body, in plain text, in JSON and in base64. The path
// gives the status.
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

// raw writes a malformed response.
func raw(w http.ResponseWriter, answer string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, answer)
	_ = conn.Close()
}

// betray is a model server that leaks the received key in every field of a response, in pieces, and breaks off
// if asked to.
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

// refuse is a model server that rejects every key and repeats it in the error.
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

// parrotMode makes the test binary an MCP server that repeats the secret in this variable.
const parrotMode = "E2E_PARROT"

// mcpParrots returns definitions of MCP servers that repeat their secrets, as a program and over HTTP.
func mcpParrots(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(
		func(r *http.Request) *mcp.Server { return testbed.Parrot(r.Header.Get("X-Key")) }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(h.Close)
	return fmt.Sprintf(`{"kind": "mcp", "name": "io", "command": [%q], "env": {%q: "secret://MCP_ENV"}, "idempotent": true},
		{"kind": "mcp", "name": "web", "url": %q, "headers": {"X-Key": "secret://MCP_HEADER"}, "idempotent": true}`, self, parrotMode, h.URL)
}

// natsParrot serves a tool that returns everything it received, as an error if the arguments ask for one.
func natsParrot(t *testing.T, nc *nats.Conn, prefix string) {
	t.Helper()
	sub, err := nc.Subscribe(toolkit.Subject(prefix, "echo_nats"), func(m *nats.Msg) {
		all := fmt.Sprintf("%v %s", m.Header, m.Data)
		field := "content"
		if strings.Contains(all, "please fail") {
			field = "error"
		}
		answer, _ := json.Marshal(map[string]string{field: all})
		_ = m.Respond(answer)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// hookParrot allows everything and returns what it received as a note where it can. heard returns what it
// received at a point.
func hookParrot(t *testing.T, nc *nats.Conn, subject string) (heard func(point string) string) {
	t.Helper()
	var mu sync.Mutex
	all := map[string]string{}
	stop, err := natshook.Serve(nc, subject, hook.Func(func(_ context.Context, r hook.Request) (hook.Answer, error) {
		data, err := json.Marshal(r)
		mu.Lock()
		defer mu.Unlock()
		all[string(r.Point)] += string(data) + "\n"
		if r.Point == hook.PostSampling {
			return hook.Answer{Notes: []string{string(data)}}, err
		}
		return hook.Answer{}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	return func(point string) string {
		mu.Lock()
		defer mu.Unlock()
		return all[point]
	}
}

// parrot is a remote agent that answers with the token of the call.
type parrot struct{ token func() string }

func (p parrot) Execute(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("your token is "+p.token())), nil)
	}
}

func (parrot) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// servers starts every server that receives a secret.
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
