//go:build clients

package clients

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	secret = "a secret of a hook"
	whsec  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// vendor runs vendors.mjs with a request, and decodes its output into out.
func vendor(t *testing.T, mode string, request, out any) error {
	t.Helper()
	if _, err := os.Stat("vendors/node_modules/stripe"); err != nil {
		t.Fatalf("%v: run `npm ci --ignore-scripts` in internal/verify/clients/vendors, as `make clients` does", err)
	}
	data, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "vendors.mjs", mode)
	cmd.Dir, cmd.Stdin, cmd.Stderr = "vendors", bytes.NewReader(data), io.Discard
	text, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// A hook accepts what the libraries of GitHub, Stripe, Slack and Standard Webhooks sign, and rejects other
// bodies with these signatures. A repeated delivery starts no second run.
func TestVendorsSign(t *testing.T) {
	t.Parallel()
	s := deploy(t)
	server, err := s.StartGateway(t.Context(), "hooks", "TURNPIKE_SECRET_HOOK="+secret, "TURNPIKE_SECRET_STANDARD="+whsec)
	if err != nil {
		t.Fatal(err)
	}
	c := api.New(server)
	if _, err := c.PutAgent(t.Context(), "a", []byte(hello)); err != nil {
		t.Fatal(err)
	}
	const body = `{"id":"evt_1","type":"event_callback","event_id":"Ev1","title":"It broke"}`
	var signed map[string]map[string]string
	if err := vendor(t, "sign", map[string]string{"secret": secret, "whsec": whsec, "body": body}, &signed); err != nil {
		t.Fatal(err)
	}
	for sender, headers := range signed {
		ref := "secret://HOOK"
		if sender == "standard" {
			ref = "secret://STANDARD"
		}
		hook, err := c.PutHook(t.Context(), sender, api.HookSettings{
			Verify: sender, Secret: state.SecretReferences{ref}, Run: &api.HookRun{Agent: "a", Input: "event.title"},
		})
		if err != nil {
			t.Fatal(err)
		}
		deliver := func(body string) int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+hook.Path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			for name, value := range headers {
				req.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		if status := deliver(strings.Replace(body, "It broke", "It is fine", 1)); status != http.StatusUnauthorized {
			t.Errorf("%s: a delivery with a different body returned %d", sender, status)
		}
		for range 2 {
			if status := deliver(body); status/100 != 2 {
				t.Errorf("%s: a delivery signed by its library returned %d", sender, status)
			}
		}
		if runs, err := c.List(t.Context(), url.Values{"metadata.hook": {sender}}); err != nil || len(runs.Items) != 1 {
			t.Errorf("%s: two equal deliveries started %d runs, %v", sender, len(runs.Items), err)
		}
	}
	if len(signed) != 4 {
		t.Errorf("%d senders, want 4", len(signed))
	}
}

// The libraries of Standard Webhooks and CloudEvents accept a worker's deliveries.
func TestVendorsVerify(t *testing.T) {
	t.Parallel()
	type delivery struct {
		Whsec   string            `json:"whsec"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	got := make(chan delivery, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		d := delivery{whsec, map[string]string{}, string(body)}
		for name := range r.Header {
			d.Headers[strings.ToLower(name)] = r.Header.Get(name)
		}
		got <- d
	}))
	t.Cleanup(receiver.Close)
	s := deploy(t, "TURNPIKE_HTTP_ALLOW=127.0.0.0/8", "TURNPIKE_SECRET_EVENTS="+whsec)
	if _, err := s.Client.PutAgent(t.Context(), "a", []byte(hello)); err != nil {
		t.Fatal(err)
	}
	run, err := s.Client.Submit(t.Context(), api.SubmitRequest{
		Agent: "a", Input: api.Text("x"), Webhook: &state.Webhook{URL: receiver.URL, Secret: state.SecretReferences{"secret://EVENTS"}},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	d := <-got
	var event struct {
		ID, Type, Source, Subject string
		Data                      struct {
			Data struct {
				Output string `json:"output"`
			} `json:"data"`
		}
	}
	if err := vendor(t, "verify", d, &event); err != nil {
		t.Fatalf("the libraries refuse %+v: %v", d, err)
	}
	if event.ID != d.Headers["webhook-id"] || event.Type != "dev.turnpike.run.finished" || event.Source != "/turnpike/default" || event.Subject != run.ID || event.Data.Data.Output != "Hello." {
		t.Errorf("the event is %+v", event)
	}
	d.Body = strings.Replace(d.Body, "Hello.", "Hullo.", 1)
	if err := vendor(t, "verify", d, &event); err == nil {
		t.Error("the libraries accept a body that was changed")
	}
}
