package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slack-go/slack"
)

const botToken = "xoxb-test"

// posted is a message of the app in the fake.
type posted struct {
	Timestamp string              `json:"ts"`
	Thread    string              `json:"thread_ts"`
	Text      string              `json:"text"`
	Metadata  slack.SlackMetadata `json:"metadata,omitzero"`

	channel, user string // user is set for a message that only this user sees
	blocks        string // as JSON
	edits         int
}

// fakeSlack is the part of Slack's Web API that the app calls.
type fakeSlack struct {
	mu       sync.Mutex
	messages []*posted
	calls    []call
	changed  chan struct{} // closed by a change

	limits       int // number of changing calls that get 429 and start a second without calls
	limitedUntil time.Time
	violations   int // calls in such a second
	lose         int // the number of posts whose response is lost

	hold chan struct{} // if not nil, posts wait until it is closed
}

type call struct {
	method, ts string
	at         time.Time
}

func newFakeSlack() *fakeSlack { return &fakeSlack{changed: make(chan struct{})} }

func (f *fakeSlack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := strings.TrimPrefix(r.URL.Path, "/")
	if f.hold != nil && method == "chat.postMessage" {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.FormValue("token") != botToken && r.Header.Get("Authorization") != "Bearer "+botToken {
		reply(w, map[string]any{"ok": false, "error": "invalid_auth"})
		return
	}
	limited := time.Now().Before(f.limitedUntil)
	if limited {
		f.violations++
	} else if method != "conversations.replies" && f.limits > 0 {
		f.limits--
		limited, f.limitedUntil = true, time.Now().Add(time.Second)
	}
	if limited {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	f.calls = append(f.calls, call{method, r.FormValue("ts"), time.Now()})
	answer := f.do(method, r)
	close(f.changed)
	f.changed = make(chan struct{})
	if method == "chat.postMessage" && f.lose > 0 {
		f.lose--
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	reply(w, answer)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// do makes one call. The caller holds f.mu.
func (f *fakeSlack) do(method string, r *http.Request) map[string]any {
	refuse := func(code string) map[string]any { return map[string]any{"ok": false, "error": code} }
	text := r.FormValue("text")
	if strings.HasPrefix(method, "chat.") && text == "" {
		return refuse("no_text")
	}
	m := &posted{channel: r.FormValue("channel")}
	switch method {
	case "chat.postMessage", "chat.postEphemeral":
		m.Timestamp, m.Thread, m.user = fmt.Sprintf("9%09d.000000", len(f.messages)), r.FormValue("thread_ts"), r.FormValue("user")
		f.messages = append(f.messages, m)
	case "chat.update":
		i := slices.IndexFunc(f.messages, func(m *posted) bool { return m.Timestamp == r.FormValue("ts") })
		if i < 0 {
			return refuse("message_not_found")
		}
		if len(text) > 4000 {
			return refuse("msg_too_long")
		}
		m = f.messages[i]
		m.edits++
	case "conversations.replies":
		return f.replies(r)
	default:
		return refuse("unknown_method")
	}
	m.Text, m.blocks = text, r.FormValue("blocks")
	if s := r.FormValue("metadata"); s != "" {
		if err := json.Unmarshal([]byte(s), &m.Metadata); err != nil {
			return refuse("invalid_metadata_format")
		}
	}
	return map[string]any{"ok": true, "channel": m.channel, "ts": m.Timestamp, "message_ts": m.Timestamp}
}

// replies lists a thread, two messages at a time. The caller holds f.mu.
func (f *fakeSlack) replies(r *http.Request) map[string]any {
	var all []*posted
	for _, m := range f.messages {
		if m.channel == r.FormValue("channel") && m.Thread == r.FormValue("ts") && m.user == "" {
			all = append(all, m)
		}
	}
	from, _ := strconv.Atoi(r.FormValue("cursor"))
	end := min(len(all), from+2)
	next := ""
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	return map[string]any{
		"ok": true, "messages": append([]*posted{{Timestamp: r.FormValue("ts")}}, all[from:end]...), "has_more": next != "",
		"response_metadata": map[string]any{"next_cursor": next},
	}
}

// thread returns the texts that everyone sees in a thread.
func (f *fakeSlack) thread(ts string) (texts []string) {
	for _, m := range f.all() {
		if m.Thread == ts && m.user == "" {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// all returns all messages.
func (f *fakeSlack) all() (all []posted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.messages {
		all = append(all, *m)
	}
	return all
}

// patience bounds the waits of a test.
const patience = 2 * time.Minute

// await waits until ok accepts the state of Slack.
func (f *fakeSlack) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no %s, but %+v", what, f.all())
		}
	}
}

// awaitThread waits until a thread has these texts.
func (f *fakeSlack) awaitThread(t *testing.T, ts string, texts ...string) {
	t.Helper()
	f.await(t, fmt.Sprintf("thread %q", texts), func() bool { return slices.Equal(f.thread(ts), texts) })
}
