package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A receiver verifies the test event with the library of Standard Webhooks, and its refusal is reported.
func TestWebhooksTest(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := hook.Verify(body, r.Header); err != nil || !strings.Contains(string(body), `"test":"true"`) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(receiver.Close)
	both := exec.CommandContext(t.Context(), os.Args[0], "webhooks", "test", receiver.URL, "--secret", "NEW", "--secret", "secret://EVENTS")
	both.Env = append(both.Environ(), "TURNPIKE_TEST_COMMAND=1", "TURNPIKE_SECRET_NEW=whsec_AAAA", "TURNPIKE_SECRET_EVENTS="+secret)
	if out, err := both.CombinedOutput(); err != nil {
		t.Errorf("an event with two secrets, the receiver has the second: %s", out)
	}
	three := exec.CommandContext(t.Context(), os.Args[0], "webhooks", "test", receiver.URL, "--secret", "A,B,C")
	three.Env = append(three.Environ(), "TURNPIKE_TEST_COMMAND=1")
	if out, err := three.CombinedOutput(); err == nil || !strings.Contains(string(out), "at most 2") {
		t.Errorf("an event with three secrets: %s", out)
	}
	for value, want := range map[string]string{secret: "the receiver has accepted the event", "whsec_AAAA": "the receiver answered 401", "": "TURNPIKE_SECRET_EVENTS is not set"} {
		c := exec.CommandContext(t.Context(), os.Args[0], "webhooks", "test", receiver.URL, "--secret", "EVENTS")
		c.Env = append(c.Environ(), "TURNPIKE_TEST_COMMAND=1", "TURNPIKE_SECRET_EVENTS="+value)
		out, err := c.CombinedOutput()
		if !strings.Contains(string(out), want) || (err == nil) != (value == secret) {
			t.Errorf("%s: %s, want %s", value, out, want)
		}
	}
}

// A receiver that redirects has not accepted the test event, as a worker's: the event goes to no other address.
func TestWebhooksTestFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		var asked []string
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked = append(asked, r.URL.Path); r.URL.Path == "/old" {
				http.Redirect(w, r, "/new", status)
			}
		}))
		out, err := says(t, nil, "webhooks", "test", receiver.URL+"/old")
		receiver.Close()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("the receiver answered ", status)) || out != "" || !slices.Equal(asked, []string{"/old"}) {
			t.Errorf("a receiver that answers %d: %q, %v; %q were requested", status, out, err, asked)
		}
	}
}

// The pending events are read in pages up to the limit, and each has a line.
func TestWebhooksPending(t *testing.T) {
	t.Parallel()
	event := func(run string, attempts int, reason, problem string) string {
		return fmt.Sprintf(`{"id":"evt_x","run_id":%q,"agent":"a","type":"run.finished","host":"example.com:443","reason":%q,"since":"2026-11-20T12:00:00Z","attempts":%d,"last_attempt_at":null,"last_error":%q,"next_attempt_at":"2026-11-20T12:00:00Z"}`,
			run, reason, attempts, problem)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch query := r.URL.RawQuery; {
		case r.URL.Path != "/v1/webhooks/pending":
			t.Errorf("%s was requested", r.URL.Path)
		case query == "limit=3":
			fmt.Fprintf(w, `{"items":[%s,%s],"next_cursor":"more"}`, event("run_1", 7, "failed", "the receiver answered 503"), event("run_2", 0, "busy", ""))
		case query == "cursor=more&limit=1":
			fmt.Fprintf(w, `{"items":[%s],"next_cursor":"even"}`, event("run_3", 0, "first_attempt", ""))
		default:
			t.Errorf("the query is %s", query)
		}
	}))
	t.Cleanup(s.Close)
	var out bytes.Buffer
	e := newEnv(&out, &out, false, false)
	e.ctx, e.client, e.server = t.Context(), api.New(s.URL), s.URL
	if err := (&webhooksPendingCmd{Limit: 3}).Run(e); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{"RUN", "run_1", "run_2", "run_3"} {
		if len(lines) != 4 || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d of %q does not begin with %s", i, out.String(), want)
		}
	}
	if got := strings.Join(strings.Fields(lines[1])[3:], " "); got != "7 0s example.com:443 failed the receiver answered 503" {
		t.Errorf("the first event is %q", got)
	}
}

// With --worker, a worker sends the event, and the command prints the receiver's response.
func TestWebhooksTestThroughWorker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ end, out, failure string }{
		{`"status":"delivered","worker":"w1","response_status":204,"latency_ms":12,"error":""`, "delivered w1 204 after 12 ms", ""},
		{`"status":"failed","worker":"w1","response_status":503,"latency_ms":7,"error":"the receiver answered 503"`, "failed w1 503 after 7 ms", "the receiver answered 503"},
		{`"status":"failed","worker":"","response_status":0,"latency_ms":0,"error":"no worker made the attempt"`, "failed", "no worker made the attempt"},
	} {
		looks := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch request := r.Method + " " + r.URL.Path; {
			case request == "POST /v1/webhooks/tests":
				body, err := io.ReadAll(r.Body)
				if err != nil || string(body) != `{"url":"https://example.com","secret":"secret://EVENTS"}` {
					t.Errorf("the request is %s, %v", body, err)
				}
				fmt.Fprint(w, `{"id":"test_1","status":"pending"}`)
			case request == "GET /v1/webhooks/tests/test_1" && looks == 0:
				looks++
				fmt.Fprint(w, `{"id":"test_1","status":"pending"}`)
			default:
				fmt.Fprintf(w, `{"id":"test_1",%s}`, c.end)
			}
		}))
		var out bytes.Buffer
		e := newEnv(&out, &out, false, false)
		e.ctx, e.client, e.server = t.Context(), api.New(s.URL), s.URL
		err := (&webhooksTestCmd{URL: "https://example.com", Secret: []string{"EVENTS"}, Worker: true}).Run(e)
		s.Close()
		if got := strings.Join(strings.Fields(out.String()), " "); got != c.out || (err != nil) != (c.failure != "") || err != nil && !strings.Contains(err.Error(), c.failure) {
			t.Errorf("printed %q, %v; want %q, %q", got, err, c.out, c.failure)
		}
	}
}

// The commands about dead events leave letters of other kinds alone, and --all replays only those that can be replayed.
func TestWebhooksLeaveOtherLetters(t *testing.T) {
	t.Parallel()
	letter := func(seq, kind, status string) string {
		return fmt.Sprintf(`{"seq":%s,"kind":%q,"status":%q,"run_id":"run_%s"}`, seq, kind, status, seq)
	}
	var replayed []string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/dead", func(w http.ResponseWriter, r *http.Request) {
		switch after := r.FormValue("after"); after {
		case "0":
			fmt.Fprintf(w, `{"items":[%s,%s,%s],"next_cursor":"4"}`, letter("1", "webhook", "open"), letter("2", "poisoned", "open"), letter("4", "webhook", "closed"))
		case "4":
			fmt.Fprintf(w, `{"items":[%s,%s],"next_cursor":null}`, letter("5", "submission", "open"), letter("7", "webhook", "open"))
		default:
			t.Errorf("letters after %s", after)
		}
	})
	mux.HandleFunc("GET /v1/dead/{seq}", func(w http.ResponseWriter, r *http.Request) {
		kind := map[string]string{"1": "webhook", "2": "poisoned", "4": "webhook"}[r.PathValue("seq")]
		fmt.Fprint(w, letter(r.PathValue("seq"), kind, "open"))
	})
	mux.HandleFunc("POST /v1/dead/{seq}/replay", func(w http.ResponseWriter, r *http.Request) {
		replayed = append(replayed, r.PathValue("seq"))
		if r.PathValue("seq") == "1" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"code":"not_replayable","title":"no receiver","detail":"no receiver","status":409}`)
			return
		}
		fmt.Fprint(w, letter(r.PathValue("seq"), "webhook", "replayed"))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	for _, test := range []struct {
		args     string
		replayed []string
		lines    string // the first word of each line
		failure  string
	}{
		{"webhooks ls", nil, "LETTER 1 4 7", ""},
		{"webhooks ls --open", nil, "LETTER 1 7", ""},
		{"dead ls --open", nil, "LETTER 1 2 5 7", ""},
		{"webhooks replay --all", []string{"1", "7"}, "7", "no receiver"},
		{"webhooks replay 4", []string{"4"}, "4", ""},
		{"webhooks replay 4 2", nil, "", "letter 2 has the kind poisoned"},
		{"webhooks replay 4 --all", nil, "", "--all are both given"},
		{"webhooks replay", nil, "", "no dead letter is selected"},
		{"dead replay --all", []string{"1", "2", "5", "7"}, "2 5 7", "no receiver"},
		{"dead replay 4 2", []string{"4", "2"}, "4 2", ""},
	} {
		replayed = nil
		out, err := says(t, api.New(s.URL), strings.Fields(test.args)...)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Fields(line)[0])
		}
		if !slices.Equal(replayed, test.replayed) || strings.Join(lines, " ") != test.lines || (err == nil) != (test.failure == "") || err != nil && !strings.Contains(err.Error(), test.failure) {
			t.Errorf("%s replayed %q and printed %q, %v; want %+v", test.args, replayed, out, err, test)
		}
	}
}
