package hookin

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Scheme is the way in which a sender signs its deliveries.
type Scheme string

// The schemes.
const (
	GitHub   Scheme = "github"   // X-Hub-Signature-256 over the body
	Stripe   Scheme = "stripe"   // Stripe-Signature over a timestamp and the body
	Slack    Scheme = "slack"    // X-Slack-Signature over a timestamp and the body
	Standard Scheme = "standard" // Standard Webhooks: webhook-signature over an id, a timestamp and the body
)

// Schemes returns all schemes.
func Schemes() []Scheme { return []Scheme{GitHub, Stripe, Slack, Standard} }

const (
	// tolerance is the maximum difference between the timestamp of a delivery and the clock: the
	// window in which a copy of a delivery has a valid signature.
	tolerance = 5 * time.Minute

	// maxSignatures is the number of signatures of one delivery that are compared.
	maxSignatures = 16

	// MaxID is the maximum length of the id of a delivery, in bytes.
	MaxID = 180
)

// Delivery is a request of a sender.
type Delivery struct {
	Body   []byte
	Header http.Header
	At     time.Time // the time of its arrival
}

// ErrSignature reports a delivery that none of the secrets has signed, or with a timestamp that is too
// far off.
var ErrSignature = errors.New("the signature does not match, or its timestamp differs by more than 5 minutes: check the secret and the sender's clock")

// Verify returns nil if one of the secrets has signed a delivery, and ErrSignature if not. It takes the same
// time for each secret.
func (s Scheme) Verify(d Delivery, secrets []string) error {
	valid := false
	for _, secret := range secrets {
		// Each secret is checked, so that the time does not depend on which one is right.
		if s.signed(d, secret) && secret != "" {
			valid = true
		}
	}
	if !valid {
		return ErrSignature
	}
	return nil
}

func (s Scheme) signed(d Delivery, secret string) bool {
	switch s {
	case GitHub:
		given, ok := strings.CutPrefix(d.Header.Get("X-Hub-Signature-256"), "sha256=")
		return ok && sameMAC(given, secret, d.Body)
	case Stripe:
		return signedByStripe(d, secret)
	case Slack:
		given, ok := strings.CutPrefix(d.Header.Get("X-Slack-Signature"), "v0=")
		at := d.Header.Get("X-Slack-Request-Timestamp")
		return ok && recent(at, d.At) && sameMAC(given, secret, []byte("v0:"+at+":"), d.Body)
	case Standard:
		hook, err := standardwebhooks.NewWebhook(secret)
		return err == nil && recent(d.Header.Get(standardwebhooks.HeaderWebhookTimestamp), d.At) && hook.VerifyIgnoringTimestamp(d.Body, d.Header) == nil
	default:
		return false
	}
}

// signedByStripe reads a header such as t=1700000000,v1=HEX,v1=HEX: Stripe has several signatures while a
// secret is rotated.
func signedByStripe(d Delivery, secret string) bool {
	var at string
	var given []string
	for part := range strings.SplitSeq(d.Header.Get("Stripe-Signature"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case name == "t":
			at = value
		case name == "v1" && len(given) < maxSignatures:
			given = append(given, value)
		}
	}
	valid := false
	for _, g := range given {
		valid = sameMAC(g, secret, []byte(at+"."), d.Body) || valid
	}
	return valid && recent(at, d.At)
}

// sameMAC reports whether text is the hex HMAC-SHA256 of the parts.
func sameMAC(text, secret string, parts ...[]byte) bool {
	given, err := hex.DecodeString(text)
	mac := hmac.New(sha256.New, []byte(secret))
	for _, p := range parts {
		_, _ = mac.Write(p) // never fails
	}
	return hmac.Equal(given, mac.Sum(nil)) && err == nil
}

// recent reports whether a timestamp in seconds is close to a time.
func recent(text string, now time.Time) bool {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return false
	}
	off := now.Unix() - seconds
	return off <= int64(tolerance/time.Second) && off >= -int64(tolerance/time.Second)
}

// Event is what a delivery says.
type Event struct {
	ID      string            // the same when the sender delivers it again
	Body    any               // as CEL reads it: objects, lists, texts, booleans, int64, float64, nil
	Headers map[string]string // by their names in lower case, without credentials
	Digest  string            // SHA-256 of the body, in hex
	Subject string            // of a message; empty for a webhook

	// Challenge is the text that the sender requires in the response, as proof that the address expects webhooks.
	Challenge string

	// Ping reports a test of the connection, which is about nothing.
	Ping bool

	// NoBody reports a sender that shows the body of a response to people.
	NoBody bool
}

// hidden are the headers that expressions cannot read.
var hidden = []string{"authorization", "proxy-authorization", "cookie", "x-hub-signature", "x-hub-signature-256", "stripe-signature", "x-slack-signature", "webhook-signature"}

// Parse reads a delivery that Verify has accepted.
func (s Scheme) Parse(d Delivery) (Event, error) {
	e := Event{Headers: map[string]string{}, Digest: digest(d.Body), NoBody: s == Slack}
	for name, values := range d.Header {
		if name = strings.ToLower(name); !slices.Contains(hidden, name) {
			e.Headers[name] = values[0]
		}
	}
	var err error
	if e.Body, err = bodyOf(d); err != nil {
		return Event{}, err
	}
	fields, _ := e.Body.(map[string]any)
	text := func(name string) string {
		value, _ := fields[name].(string)
		return value
	}
	place := "field id of the body"
	switch s {
	case GitHub:
		place = "header X-GitHub-Delivery"
		e.ID, e.Ping = d.Header.Get("X-GitHub-Delivery"), d.Header.Get("X-GitHub-Event") == "ping"
	case Stripe:
		e.ID = text("id")
	case Slack:
		place = "field event_id of the body"
		e.ID = text("event_id")
		if e.ID == "" { // commands and buttons, which Slack does not deliver again
			place = "field trigger_id of the body"
			e.ID = text("trigger_id")
		}
		if e.ID == "" {
			place = "header X-Slack-Request-Timestamp and the hash of the body"
			e.ID = d.Header.Get("X-Slack-Request-Timestamp") + "." + e.Digest
		}
		if text("type") == "url_verification" {
			e.Challenge = text("challenge")
		}
	case Standard:
		place = "header " + standardwebhooks.HeaderWebhookID
		e.ID = d.Header.Get(standardwebhooks.HeaderWebhookID)
	}
	if e.ID == "" || len(e.ID) > MaxID {
		return Event{}, fmt.Errorf("the id of the delivery (the text in the %s) has %d bytes instead of 1 to %d: correct it at the sender; if the sender has its id elsewhere, correct verify of the hook, which is %s", place, len(e.ID), MaxID, s)
	}
	return e, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// maxHeaders is the number of headers of a message that expressions can read, and maxHeader the size of one
// in bytes. Further and larger ones are left out.
const (
	maxHeaders = 100
	maxHeader  = 8 << 10
)

// Message returns the event of a message that was published on a subject. The body of the event is the JSON document in
// data, or else its text. The event has the first value of each header, under the name in lower case, but no more than
// maxHeaders of them and none larger than maxHeader. id must be the same each time that the message is delivered.
func Message(id, subject string, headers map[string][]string, data []byte) Event {
	e := Event{ID: id, Subject: subject, Headers: map[string]string{}, Digest: digest(data)}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if values := headers[name]; len(values) > 0 && len(name)+len(values[0]) <= maxHeader && len(e.Headers) < maxHeaders {
			e.Headers[strings.ToLower(name)] = strings.ToValidUTF8(values[0], "\uFFFD")
		}
	}
	var err error
	if e.Body, err = jsonOf(data, "the message", "JSON"); err != nil {
		e.Body = strings.ToValidUTF8(string(data), "\uFFFD")
	}
	return e
}

// bodyOf reads a body in JSON, or a form: the JSON in its field payload, as GitHub and Slack have it, or
// its fields.
func bodyOf(d Delivery) (any, error) {
	kind, _, _ := strings.Cut(d.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded") {
		return jsonOf(d.Body, "the body", "a JSON document, or a form with the Content-Type application/x-www-form-urlencoded")
	}
	form, err := url.ParseQuery(string(d.Body))
	if err != nil {
		return nil, fmt.Errorf("the body is not a form, although Content-Type says so (%w): correct its encoding", err)
	}
	if form.Has("payload") {
		return jsonOf([]byte(form.Get("payload")), "the field payload of the form", "a JSON document in it")
	}
	fields := map[string]any{}
	for name, values := range form {
		fields[name] = values[0]
	}
	return fields, nil
}

// jsonOf reads one JSON document. A whole number becomes an int64, so that an expression makes the same
// digits of it. Errors name the place of the document and what to send.
func jsonOf(data []byte, place, send string) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("%s is not JSON (%w): send %s", place, err, send)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) { // More ignores a closing brace
		return nil, fmt.Errorf("%s has more text after its JSON document: send one document", place)
	}
	return plain(v), nil
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // infinite beyond its range
		return f
	case map[string]any:
		for name := range v {
			v[name] = plain(v[name])
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}
