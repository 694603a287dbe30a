package hookin_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/internal/hookin"
)

func mac(secret, text string) string {
	h := hmac.New(sha256.New, []byte(secret))
	_, _ = h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil))
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// The signatures in the senders' documentation verify.
func TestPublishedSignatures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scheme hookin.Scheme
		secret string
		d      hookin.Delivery
	}{
		"github: Testing the webhook payload validation": {hookin.GitHub, "It's a Secret to Everybody", hookin.Delivery{
			Body: []byte("Hello, World!"), Header: header("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
		}},
		"slack: Verifying requests": {hookin.Slack, "8f742231b10e8888abcd99yyyzzz85a5", hookin.Delivery{
			Body:   []byte("token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"),
			Header: header("X-Slack-Request-Timestamp", "1531420618", "X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
			At:     time.Unix(1531420618, 0),
		}},
		"standard: the specification": {hookin.Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", hookin.Delivery{
			Body:   []byte(`{"test": 2432232314}`),
			Header: header("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp", "1614265330", "webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
			At:     time.Unix(1614265330, 0),
		}},
	} {
		if err := c.scheme.Verify(c.d, []string{c.secret}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.scheme.Verify(c.d, []string{c.secret + "x"}); err == nil {
			t.Errorf("%s: another secret is accepted", name)
		}
	}
}

// signed returns a delivery of each scheme.
func signed(t *testing.T, scheme hookin.Scheme, secret, body string, at time.Time) hookin.Delivery {
	t.Helper()
	stamp := fmt.Sprint(at.Unix())
	h := http.Header{}
	switch scheme {
	case hookin.GitHub:
		h.Set("X-Hub-Signature-256", "sha256="+mac(secret, body))
		h.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	case hookin.Stripe:
		h.Set("Stripe-Signature", "t="+stamp+",v1="+strings.Repeat("0", 64)+",v1="+mac(secret, stamp+"."+body)+",v0=x")
	case hookin.Slack:
		h.Set("X-Slack-Request-Timestamp", stamp)
		h.Set("X-Slack-Signature", "v0="+mac(secret, "v0:"+stamp+":"+body))
	case hookin.Standard:
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := hook.Sign("msg_1", at, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		h.Set("webhook-id", "msg_1")
		h.Set("webhook-timestamp", stamp)
		h.Set("webhook-signature", signature)
	}
	return hookin.Delivery{Body: []byte(body), Header: h, At: at}
}

// Any change of a delivery makes its signature invalid, and so does its age, if the scheme signs the time.
func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Unix(1800000000, 0)
	secret, old := "whsec_"+base64.StdEncoding.EncodeToString([]byte("a secret of this hook")), "whsec_"+base64.StdEncoding.EncodeToString([]byte("an older secret"))
	for _, scheme := range hookin.Schemes() {
		body := `{"id":"evt_1","event_id":"Ev1"}`
		d := signed(t, scheme, secret, body, now)
		for name, secrets := range map[string][]string{"one": {secret}, "the second": {old, secret}, "the first": {secret, old}} {
			if err := scheme.Verify(d, secrets); err != nil {
				t.Errorf("%s: %s: %v", scheme, name, err)
			}
		}
		for name, secrets := range map[string][]string{"another": {old}, "none": {}, "an empty one": {""}} {
			if scheme.Verify(d, secrets) == nil {
				t.Errorf("%s: %s secret is accepted", scheme, name)
			}
		}
		changed := d
		changed.Body = []byte(`{"id":"evt_2","event_id":"Ev1"}`)
		if scheme.Verify(changed, []string{secret}) == nil {
			t.Errorf("%s: another body is accepted", scheme)
		}
		if scheme.Verify(hookin.Delivery{Body: d.Body, Header: http.Header{}, At: now}, []string{secret}) == nil {
			t.Errorf("%s: a delivery without headers is accepted", scheme)
		}
		empty := signed(t, scheme, "", body, now)
		if scheme.Verify(empty, []string{""}) == nil {
			t.Errorf("%s: a signature by an empty secret is accepted", scheme)
		}
		for _, off := range []time.Duration{-301 * time.Second, 301 * time.Second} {
			late := d
			late.At = now.Add(off)
			if accepted := scheme.Verify(late, []string{secret}) == nil; accepted != (scheme == hookin.GitHub) {
				t.Errorf("%s: at %s: accepted is %t", scheme, off, accepted)
			}
		}
		for _, off := range []time.Duration{-300 * time.Second, 300 * time.Second} {
			in := d
			in.At = now.Add(off)
			if err := scheme.Verify(in, []string{secret}); err != nil {
				t.Errorf("%s: at %s: %v", scheme, off, err)
			}
		}
		e, err := scheme.Parse(d)
		want := map[hookin.Scheme]string{hookin.GitHub: "72d3162e-cc78-11e3-81ab-4c9367dc0958", hookin.Stripe: "evt_1", hookin.Slack: "Ev1", hookin.Standard: "msg_1"}[scheme]
		if err != nil || e.ID != want {
			t.Errorf("%s: id %q, want %q: %v", scheme, e.ID, want, err)
		}
		for name := range e.Headers {
			if strings.Contains(name, "signature") {
				t.Errorf("%s: expressions can read the header %s", scheme, name)
			}
		}
	}
}

// While a secret of Stripe is rotated, a delivery has the signatures of both. Any of the first 16 counts.
func TestStripeSignatures(t *testing.T) {
	t.Parallel()
	const body, at = `{"id":"evt_1"}`, "1800000000"
	good, bad := "v1="+mac("secret", at+"."+body), "v1="+strings.Repeat("0", 64)
	bads := func(n int) string { return strings.Repeat(","+bad, n) }
	for signature, want := range map[string]bool{
		"t=" + at + "," + good:                               true,
		"t=" + at + "," + good + "," + bad:                   true,
		"t=" + at + ", " + bad + ", " + good:                 true,
		good + ",t=" + at:                                    true,
		"t=" + at + bads(15) + "," + good:                    true,
		"t=" + at + bads(16) + "," + good:                    false,
		"t=" + at + "," + strings.Replace(good, "1", "0", 1): false, // an older scheme, of test deliveries
		"t=1800000001," + good:                               false,
		good:                                                 false,
		"v1=" + mac("secret", "."+body):                      false,
	} {
		d := hookin.Delivery{Body: []byte(body), Header: header("Stripe-Signature", signature), At: time.Unix(1800000000, 0)}
		if accepted := hookin.Stripe.Verify(d, []string{"secret"}) == nil; accepted != want {
			t.Errorf("%.200s: accepted is %t", signature, accepted)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	form := header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8", "X-GitHub-Delivery", "d", "X-GitHub-Event", "ping")
	e, err := hookin.GitHub.Parse(hookin.Delivery{Body: []byte("payload=%7B%22n%22%3A12345678901%2C%22f%22%3A1.5%7D"), Header: form})
	if err != nil || !e.Ping || e.Body.(map[string]any)["n"] != int64(12345678901) || e.Body.(map[string]any)["f"] != 1.5 {
		t.Errorf("a form with a payload: %+v, %v", e, err)
	}
	e, err = hookin.Slack.Parse(hookin.Delivery{Body: []byte("command=%2Fask&text=hi&trigger_id=1.2"), Header: form})
	if err != nil || e.ID != "1.2" || e.Body.(map[string]any)["command"] != "/ask" {
		t.Errorf("a command: %+v, %v", e, err)
	}
	long := strings.Repeat("d", hookin.MaxID)
	if e, err := hookin.GitHub.Parse(hookin.Delivery{Body: []byte("{}"), Header: header("X-GitHub-Delivery", long)}); err != nil || e.ID != long || e.Ping {
		t.Errorf("an id of %d bytes: %+v, %v", len(long), e, err)
	}
	// Slack delivers a command without ids once: its id is the time and the body.
	e, err = hookin.Slack.Parse(hookin.Delivery{Body: []byte("{}"), Header: header("X-Slack-Request-Timestamp", "7")})
	if err != nil || e.ID != "7."+e.Digest || len(e.Digest) != 64 || !e.NoBody {
		t.Errorf("a delivery of Slack without ids: %+v, %v", e, err)
	}
	for want, d := range map[string]struct {
		scheme hookin.Scheme
		body   string
		header http.Header
	}{
		"the text in the header X-GitHub-Delivery) has 0 bytes":     {hookin.GitHub, "{}", header()},
		"the text in the field id of the body) has 0 bytes":         {hookin.Stripe, `{"id":1}`, header()},
		"the text in the field event_id of the body) has 181 bytes": {hookin.Slack, `{"event_id":"` + strings.Repeat("d", 181) + `"}`, header()},
		"the text in the header webhook-id) has 0 bytes":            {hookin.Standard, "{}", header()},
		"the field payload of the form is not JSON":                 {hookin.GitHub, "payload=x", form},
	} {
		if e, err := d.scheme.Parse(hookin.Delivery{Body: []byte(d.body), Header: d.header}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want an error with %s", e, err, want)
		}
	}
	for name, d := range map[string]hookin.Delivery{
		"no JSON":       {Body: []byte("x"), Header: header("X-GitHub-Delivery", "d")},
		"nothing":       {Header: header("X-GitHub-Delivery", "d")},
		"two documents": {Body: []byte("{}{}"), Header: header("X-GitHub-Delivery", "d")},
		"a brace more":  {Body: []byte("{}}"), Header: header("X-GitHub-Delivery", "d")},
		"no id":         {Body: []byte("{}"), Header: header()},
		"a long id":     {Body: []byte("{}"), Header: header("X-GitHub-Delivery", strings.Repeat("d", 181))},
	} {
		if e, err := hookin.GitHub.Parse(d); err == nil {
			t.Errorf("%s gave %+v", name, e)
		}
	}
}

// Expressions read no header with a credential or a signature.
func TestCredentialsAreHidden(t *testing.T) {
	t.Parallel()
	h := header("X-GitHub-Delivery", "d", "X-Kind", "k")
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Hub-Signature", "X-Hub-Signature-256", "Stripe-Signature", "X-Slack-Signature", "Webhook-Signature"} {
		h.Set(name, "secret")
	}
	e, err := hookin.GitHub.Parse(hookin.Delivery{Body: []byte("{}"), Header: h})
	if err != nil || e.Headers["x-kind"] != "k" {
		t.Errorf("headers %v, %v", e.Headers, err)
	}
	for name, value := range e.Headers {
		if value == "secret" {
			t.Errorf("expressions can read the header %s", name)
		}
	}
}

func FuzzDelivery(f *testing.F) {
	f.Add("stripe", []byte("{}"), "t=1,v1=00,v1=zz", "1")
	f.Add("slack", []byte("payload={}"), "v0=00", "9223372036854775807")
	f.Add("standard", []byte(`{"a":1e400}`), "v1,x v1,", "-9223372036854775808")
	f.Fuzz(func(t *testing.T, scheme string, body []byte, signature, at string) {
		h := header("Stripe-Signature", signature, "X-Slack-Signature", signature, "webhook-signature", signature, "X-Hub-Signature-256", signature,
			"X-Slack-Request-Timestamp", at, "webhook-timestamp", at, "webhook-id", "a", "X-GitHub-Delivery", "a")
		d := hookin.Delivery{Body: body, Header: h, At: time.Unix(1800000000, 0)}
		if hookin.Scheme(scheme).Verify(d, []string{"whsec_aGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8="}) == nil {
			t.Error("a signature without the secret is accepted")
		}
		_, _ = hookin.Scheme(scheme).Parse(d)
	})
}

func TestMessage(t *testing.T) {
	t.Parallel()
	headers := map[string][]string{"X-Kind": {"a", "b"}, "Large": {strings.Repeat("x", 9000)}, "None": {}, "Bad": {"\xff"}}
	for i := range 200 {
		headers[fmt.Sprintf("Z%03d", i)] = []string{"z"}
	}
	e := hookin.Message("S:1:2", "orders.eu", headers, []byte(`{"n":12345678901}`))
	if e.ID != "S:1:2" || e.Subject != "orders.eu" || e.Body.(map[string]any)["n"] != int64(12345678901) || e.Headers["x-kind"] != "a" || e.Headers["bad"] != "\uFFFD" || e.Headers["large"] != "" || len(e.Headers) != 100 {
		t.Errorf("message: %+v", e)
	}
	largest := strings.Repeat("x", 8<<10-len("Size"))
	for value, kept := range map[string]bool{largest: true, largest + "x": false} {
		e := hookin.Message("i", "s", map[string][]string{"Size": {value}}, nil)
		if got, ok := e.Headers["size"]; ok != kept || kept && got != value {
			t.Errorf("a header of %d bytes is kept: %t, want %t", len("Size")+len(value), ok, kept)
		}
	}
	for text, want := range map[string]string{"": "", "plain": "plain", "{} {}": "{} {}", "\xff{": "\uFFFD{", `"quoted"`: "quoted"} {
		if e := hookin.Message("i", "s", nil, []byte(text)); e.Body != want || len(e.Digest) != 64 {
			t.Errorf("%q is read as %#v", text, e.Body)
		}
	}
}
