package gateway_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// attacked is a gateway with the agent a, for fuzzed input.
type attacked struct {
	g   *gateway.Gateway
	run string // a run of the agent
	n   int    // number of inputs so far
}

func newAttacked(f *testing.F) *attacked {
	f.Helper()
	a := &attacked{}
	a.fresh(f)
	return a
}

// fresh replaces the gateway and its store: submitted inputs stay in memory.
func (a *attacked) fresh(tb testing.TB) {
	tb.Helper()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{MaxBody: 64 << 10})
	if err != nil {
		tb.Fatal(err)
	}
	a.g, a.n = g, 0
	if w := a.ask(tb, http.MethodPut, "/v1/agents/a", []byte(`{"model":{"provider":"scripted"},"tools":[{"name":"t","kind":"client","schema":{"type":"object"}}]}`), nil); w.Code != http.StatusCreated && w.Code != http.StatusOK {
		tb.Fatalf("PUT = %d %s", w.Code, w.Body)
	}
	w := a.ask(tb, http.MethodPost, "/v1/runs", []byte(`{"agent":"a","input":"x"}`), nil)
	var run api.Run
	if err := json.Unmarshal(w.Body.Bytes(), &run); err != nil || run.ID == "" {
		tb.Fatalf("POST = %d %s", w.Code, w.Body)
	}
	a.run = run.ID
}

// next starts with another input.
func (a *attacked) next(tb testing.TB) {
	tb.Helper()
	if a.n++; a.n > 500 {
		a.fresh(tb)
	}
}

// ask makes a request. It fails on a server error, and on a refusal that is too long.
func (a *attacked) ask(tb testing.TB, method, target string, body []byte, header http.Header) *httptest.ResponseRecorder {
	tb.Helper()
	u, err := url.Parse(target)
	if err != nil {
		tb.Fatal(err)
	}
	r := httptest.NewRequest(method, "http://127.0.0.1:7070/", strings.NewReader(string(body)))
	r.URL.Path, r.URL.RawQuery, r.RequestURI = u.Path, u.RawQuery, target
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	a.g.Handler().ServeHTTP(w, r)
	if w.Code >= http.StatusInternalServerError {
		tb.Fatalf("%s %q %q = %d %s", method, target, body, w.Code, w.Body)
	}
	if w.Code >= http.StatusBadRequest {
		var p api.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code == "" || w.Body.Len() > 64<<10 {
			tb.Fatalf("%s %q %q = %d with %d bytes %.300s: %v", method, target, body, w.Code, w.Body.Len(), w.Body, err)
		}
	}
	return w
}

// A submission is stored as a run that can be read, or refused with a reason.
func FuzzSubmit(f *testing.F) {
	f.Add([]byte(`{"agent":"a","input":"x"}`), "")
	f.Add([]byte(`{"agent":"a","input":[{"role":"user","content":"x"}],"limits":{"max_turns":3,"cost_usd":0.5,"deadline":"10m"},"priority":"high","metadata":{"k":"v"},"stream":"deltas"}`), "key")
	f.Add([]byte(`{"agent":"a","input":"x","output_schema":{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}}}`), "k k")
	f.Add([]byte(`{"agent":"a","input":"x","start_at":"9999-12-31T23:59:59Z","limits":{"deadline":"-1s","max_turns":1e400}}`), "")
	a := newAttacked(f)
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		a.next(t)
		header := http.Header{}
		if key != "" {
			header.Set("Idempotency-Key", key)
		}
		w := a.ask(t, http.MethodPost, "/v1/runs", body, header)
		if w.Code >= http.StatusBadRequest {
			return
		}
		var run api.Run
		if err := json.Unmarshal(w.Body.Bytes(), &run); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"", "/messages?view=full", "/turns"} {
			if w := a.ask(t, http.MethodGet, "/v1/runs/"+run.ID+path, nil, nil); w.Code != http.StatusOK {
				t.Errorf("%q was accepted, and GET %s returns %d %s", body, path, w.Code, w.Body)
			}
		}
	})
}

// A signal is accepted or refused, and the run stays readable.
func FuzzSignal(f *testing.F) {
	f.Add([]byte(`{"message":"x"}`), "")
	f.Add([]byte(`{"message":{"role":"user","parts":[{"type":"text","text":"x"}]}}`), "k")
	f.Add([]byte(`{"approvals":[{"call_id":"c","decision":"approve","arguments":{"a":1},"reason":"r"}]}`), "")
	f.Add([]byte(`{"tool_results":[{"call_id":"c","content":"x","is_error":true}],"signal_id":"s"}`), "")
	f.Add([]byte(`{"answer":"x","message":"y"}`), "")
	f.Add([]byte(`{"tool_results":[{"call_id":"c","content":"x","files":[{"type":"file","file_id":"file_x"},{"media_type":"text/plain","data":"aGk="}]}]}`), "")
	a := newAttacked(f)
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		a.next(t)
		header := http.Header{}
		if key != "" {
			header.Set("Idempotency-Key", key)
		}
		a.ask(t, http.MethodPost, "/v1/runs/"+a.run+"/signals", body, header)
		if w := a.ask(t, http.MethodGet, "/v1/runs/"+a.run, nil, nil); w.Code != http.StatusOK {
			t.Errorf("after %q the run is %d %s", body, w.Code, w.Body)
		}
	})
}

// An upload, raw or as a form, becomes a file that reads back unchanged, or is refused.
func FuzzUpload(f *testing.F) {
	form := "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.pdf\"\r\n" +
		"Content-Type: application/pdf\r\n\r\n%PDF\r\n--b--\r\n"
	f.Add([]byte("hello"), "text/plain; charset=utf-8", "a.txt")
	f.Add([]byte("\x89PNG\r\n\x1a\n"), "", "")
	f.Add([]byte(form), "multipart/form-data; boundary=b", "")
	f.Add([]byte(form[:120]), "multipart/form-data; boundary=b", "x")
	f.Add([]byte(strings.ReplaceAll(form, "a.pdf", "../\\\"\x01")), "multipart/form-data; boundary=b", "")
	f.Add([]byte("x"), "multipart/form-data", "../a\"\r\nb")
	a := newAttacked(f)
	f.Fuzz(func(t *testing.T, body []byte, kind, name string) {
		a.next(t)
		header := http.Header{"Content-Type": {kind}}
		w := a.ask(t, http.MethodPost, "/v1/files?name="+url.QueryEscape(name), body, header)
		if w.Code >= http.StatusBadRequest {
			return
		}
		var made api.File
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil {
			t.Fatal(err)
		}
		content := a.ask(t, http.MethodGet, "/v1/files/"+made.ID+"/content", nil, nil)
		if content.Code != http.StatusOK || int64(content.Body.Len()) != made.Bytes || !bytes.Contains(body, content.Body.Bytes()) {
			t.Errorf("%q of type %q reads back as %d %q", body, kind, content.Code, content.Body)
		}
		if got := content.Header().Get("Content-Disposition"); !strings.HasPrefix(got, "attachment") {
			t.Errorf("%q is downloaded with %q", name, got)
		}
		if w := a.ask(t, http.MethodDelete, "/v1/files/"+made.ID, nil, nil); w.Code != http.StatusNoContent {
			t.Errorf("DELETE = %d %s", w.Code, w.Body)
		}
	})
}

// Any Last-Event-ID gets a page or a refusal.
func FuzzLastEventID(f *testing.F) {
	for _, id := range []string{"", "0", "1", "-1", "9223372036854775807", "9223372036854775808", "1e3", "0x1", " 1", "+1", "١"} {
		f.Add(id, "")
		f.Add("", "after="+id+"&limit=3")
	}
	f.Add("", "cursor=%zz&limit=99999999999999999999")
	a := newAttacked(f)
	f.Fuzz(func(t *testing.T, id, query string) {
		a.next(t)
		header := http.Header{"Accept": {"application/json"}, "Last-Event-Id": {id}}
		w := a.ask(t, http.MethodGet, "/v1/runs/"+a.run+"/events", nil, header)
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("after %q: %d %s", id, w.Code, w.Body)
		}
		r := "/v1/runs/" + a.run + "/events?" + url.PathEscape(query)
		a.ask(t, http.MethodGet, r, nil, http.Header{"Accept": {"application/json"}})
	})
}

// The cursor of any list page leads to another page.
func FuzzLists(f *testing.F) {
	f.Add("status=completed&agent=a", "")
	f.Add("metadata.k=v&parent=run_01JD3X9K3W8Q4V5N6M7P8R9S0T", "created_after=2026-01-01T00:00:00Z")
	f.Add("limit=1", "cursor=AAAA")
	f.Add("cursor=%00&limit=-1", "waiting_reason=x")
	a := newAttacked(f)
	f.Fuzz(func(t *testing.T, one, two string) {
		a.next(t)
		if _, err := url.Parse("/?" + one + "&" + two); err != nil {
			return
		}
		for _, path := range []string{"/v1/runs?", "/v1/dead?", "/v1/audit?", "/v1/runs/" + a.run + "/messages?"} {
			w := a.ask(t, http.MethodGet, path+one+"&"+two, nil, nil)
			var page api.Page[json.RawMessage]
			if err := json.Unmarshal(w.Body.Bytes(), &page); w.Code == http.StatusOK && err != nil && !strings.Contains(path, "messages") {
				t.Errorf("GET %s%s&%s does not return a page: %v", path, one, two, err)
			}
		}
	})
}
