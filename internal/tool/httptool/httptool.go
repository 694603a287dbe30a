package httptool

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// maxSkipped is the maximum number of bytes of an oversized response that are read only to measure it.
const maxSkipped = 4 << 20

// pictures are the media types of images that models accept.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Request is the template of a request.
type Request = toolspec.Request

var (
	argument  = toolspec.Argument
	secretRef = toolspec.SecretRef
)

// Caller is the kind of tools that make HTTP requests. It is safe for concurrent use.
type Caller struct {
	tool.Plain

	client *http.Client
}

// Spec implements tool.Kind.
func (*Caller) Spec() tool.Spec { return toolspec.HTTPSpec }

// Call implements tool.Kind.
func (c *Caller) Call(ctx context.Context, t tool.Bound, call tool.Call) (tool.Result, error) {
	r, ok := t.Settings.(*Request)
	if !ok {
		return tool.Result{}, fmt.Errorf("the settings of the tool have the unexpected type %T. Continue without the tool; the operator must report this bug in Turnpike", t.Settings)
	}
	return c.call(ctx, *r, t.Secret, call)
}

// New returns a caller that makes all requests through g.
func New(g *guard.Guard) *Caller { return &Caller{client: g.Client()} }

// Tool returns the tool of a template, which must pass Check. Each call of the tool calls resolve for the value of each
// secret in the template, with the secret's name and the "host:port" of the request.
func (c *Caller) Tool(r Request, resolve func(name, host string) (string, error)) tool.Tool {
	return tool.Func(func(ctx context.Context, call tool.Call) (tool.Result, error) { return c.call(ctx, r, resolve, call) })
}

func (c *Caller) call(ctx context.Context, r Request, resolve func(name, host string) (string, error), call tool.Call) (tool.Result, error) {
	f := filler{resolve: resolve, host: toolspec.HostPort(r.URL), used: map[string]bool{}}
	dec := json.NewDecoder(bytes.NewReader(call.Arguments))
	dec.UseNumber() // numbers keep their digits
	if err := dec.Decode(&f.args); err != nil {
		return tool.Error("the arguments are not a JSON object: send one"), nil
	}
	req, err := c.request(ctx, r, &f, call)
	if err != nil {
		return tool.Error(f.redact(err.Error())), nil
	}
	return c.send(req, &f, call)
}

// request returns the request of a call. Its error is for the model, and may contain secrets.
func (c *Caller) request(ctx context.Context, r Request, f *filler, call tool.Call) (*http.Request, error) {
	path, query, _ := strings.Cut(r.URL, "?")
	path = f.fill(path, func(v string) string {
		if v == "." || v == ".." {
			f.fail(fmt.Errorf("%q cannot be part of a URL path: pass another value", v))
		}
		return url.PathEscape(v)
	})
	query = f.fillSecret(query, url.QueryEscape, url.QueryEscape)
	more := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		more.Set(name, f.fillSecret(r.Query[name], oneLine, asIs))
	}
	headers := http.Header{}
	for name, value := range r.Headers {
		headers.Set(name, f.fillSecret(value, oneLine, asIs))
	}
	rest := f.rest()
	var body io.Reader
	switch r.Verb() {
	case http.MethodGet, http.MethodDelete:
		for name, value := range rest {
			more.Set(name, plain(value))
		}
	default:
		data, err := json.Marshal(rest)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
		if headers.Get("Content-Type") == "" {
			headers.Set("Content-Type", "application/json")
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	target := path
	if all := strings.Trim(query+"&"+more.Encode(), "&"); all != "" {
		target += "?" + all
	}
	req, err := http.NewRequestWithContext(ctx, r.Verb(), target, body)
	if err != nil {
		return nil, errors.New("these arguments result in an invalid URL: pass other values")
	}
	req.Header = headers
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "turnpike")
	}
	if call.TraceParent != "" && req.Header.Get("Traceparent") == "" {
		req.Header.Set("Traceparent", call.TraceParent)
	}
	if req.Header.Get("Idempotency-Key") == "" {
		req.Header.Set("Idempotency-Key", call.IdempotencyKey)
	}
	return req, nil
}

// send makes the request and reads the response. Responses of any status, and failures of the request, are results
// (A7); the error is that of the context.
func (c *Caller) send(req *http.Request, f *filler, call tool.Call) (tool.Result, error) {
	resp, err := c.client.Do(req)
	if err != nil {
		if ctx := req.Context(); ctx.Err() != nil {
			return tool.Result{}, ctx.Err()
		}
		if why := guard.Refusal(err); why != nil {
			return tool.Error(fmt.Sprintf("the request to %s was not sent: %v", guard.HostPort(req.URL), why)), nil
		}
		// The text of a url.Error contains the URL, which may contain a secret.
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return tool.Error(f.redact(fmt.Sprintf("%s did not answer: %s. Check whether the request had an effect before you repeat it", req.URL.Hostname(), guard.Text(err)))), nil
	}
	defer resp.Body.Close()
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	picture, limit := resp.StatusCode < 300 && slices.Contains(pictures, media), call.Limit()
	if picture {
		limit = base64.StdEncoding.DecodedLen(tool.MaxImageBytes)
		if call.Grow != nil && !call.Grow(2*tool.MaxImageBytes) {
			return tool.Error(req.URL.Hostname() + " answered with an image, and the worker has no memory for it now. Repeat the request later; it may have had an effect, so check that first. The operator can raise TURNPIKE_ANSWERS_MIB"), nil
		}
	}
	document := resp.StatusCode < 300 && (media == "application/pdf" || strings.HasPrefix(media, "audio/"))
	if document {
		limit = tool.MaxFileBytes
		need := int64(limit)
		if n := resp.ContentLength; n >= 0 {
			need = min(n, need)
		}
		// Memory for the body, its redacted copy, and its base64.
		if call.Grow != nil && !call.Grow(4*need) {
			return tool.Error(req.URL.Hostname() + " answered with a file, and the worker has no memory for it now. Repeat the request later; it may have had an effect, so check that first. The operator can raise TURNPIKE_ANSWERS_MIB"), nil
		}
	}
	body, size, err := read(resp, limit)
	if err != nil {
		if ctx := req.Context(); ctx.Err() != nil {
			return tool.Result{}, ctx.Err()
		}
		return tool.Error(f.redact(fmt.Sprintf("the answer of %s was not received in full: %s. The request may have had an effect: check that before you repeat it", req.URL.Hostname(), guard.Text(err)))), nil
	}
	secrets := secret.New(f.secrets...)
	if size > limit {
		shown, _ := secrets.Cut(string(body)) // it may end with the beginning of a secret
		body = []byte(shown)
	} else {
		body = []byte(secrets.Redact(string(body))) // images too: a server may send any bytes as an image
	}
	if picture {
		if size > limit {
			return tool.Error(fmt.Sprintf("%s answered with an image of more than %d bytes, the maximum: request a smaller image, or an answer that contains its URL", req.URL.Hostname(), limit)), nil
		}
		return tool.Result{Images: []state.Image{{MediaType: media, Data: base64.StdEncoding.EncodeToString(body)}}}, nil
	}
	if document {
		if size > limit {
			return tool.Error(fmt.Sprintf("%s answered with a file of more than %d bytes, the maximum: request a smaller file, or an answer that contains its URL", req.URL.Hostname(), limit)), nil
		}
		return tool.Result{Files: []state.Part{tool.File(fileName(req.URL), f.redact(media), body)}}, nil
	}
	text, status := string(body), f.redact(resp.Status)
	if size > limit {
		text = wholeRunes(text[:min(limit, len(text))])
	} else {
		size = 0
	}
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return tool.Error(fmt.Sprintf("%s answered %s, and redirects are not followed. Continue without the tool; the author of the agent must set its url to the final address", req.URL.Hostname(), status)), nil
	case !utf8.ValidString(text) && resp.StatusCode >= 400:
		return tool.Error(fmt.Sprintf("%s answered %s, with content that is not UTF-8 text. Check the arguments, or continue without the tool", req.URL.Hostname(), status)), nil
	case !utf8.ValidString(text):
		return tool.Error(fmt.Sprintf("%s answered %s with content that is not UTF-8 text (Content-Type %q): request text in UTF-8, or continue without the tool", req.URL.Hostname(), status, f.redact(resp.Header.Get("Content-Type")))), nil
	case resp.StatusCode >= 400:
		return tool.Error(fmt.Sprintf("%s answered %s: %s", req.URL.Hostname(), status, text)), nil
	default:
		return tool.Result{Content: text, Bytes: size}, nil
	}
}

// fileName returns a name for the file at a URL. The URL may contain secrets, so only its extension is used.
func fileName(u *url.URL) string {
	if ext := path.Ext(u.Path); len(ext) > 1 && len(ext) <= 5 && !strings.ContainsFunc(ext[1:], func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return "file" + ext
	}
	return ""
}

// read returns the first limit bytes of a response, and its size, counting at most maxSkipped further bytes.
func read(resp *http.Response, limit int) (body []byte, size int, err error) {
	var buf bytes.Buffer
	if n := resp.ContentLength; n > 0 {
		buf.Grow(min(int(min(n, int64(limit))), limit) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(io.LimitReader(resp.Body, int64(limit))); err != nil {
		return nil, 0, err
	}
	more, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxSkipped))
	return buf.Bytes(), buf.Len() + int(more), err
}

// wholeRunes removes an incomplete rune at the end of a text.
func wholeRunes(text string) string {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if at := len(text) - n; utf8.RuneStart(text[at]) {
			if !utf8.FullRuneInString(text[at:]) {
				return text[:at]
			}
			break
		}
	}
	return text
}

// filler fills arguments and secrets into templates, and records which it has used.
type filler struct {
	args    map[string]any
	used    map[string]bool
	resolve func(name, host string) (string, error)
	host    string // the "host:port" of the request
	secrets []string
	err     error
}

func (f *filler) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *filler) fill(text string, escape func(string) string) string {
	return argument.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		f.used[name] = true
		v, ok := f.args[name]
		if !ok || v == nil || v == "" {
			f.fail(fmt.Errorf("the argument %q is missing or empty: pass a value that is not empty", name))
			return ""
		}
		return escape(plain(v))
	})
}

// fillSecret fills in arguments and secrets, each escaped for its place. An argument that looks like a reference to a
// secret stays text.
func (f *filler) fillSecret(text string, escape, escapeSecret func(string) string) string {
	var out strings.Builder
	for text != "" {
		at := secretRef.FindStringSubmatchIndex(text)
		if at == nil {
			out.WriteString(f.fill(text, escape))
			break
		}
		out.WriteString(f.fill(text[:at[0]], escape))
		value, err := f.resolve(text[at[2]:at[3]], f.host)
		if err != nil {
			f.fail(err)
		}
		f.secrets = append(f.secrets, value)
		out.WriteString(escapeSecret(value))
		text = text[at[1]:]
	}
	return out.String()
}

// asIs returns a secret unchanged, even if the request is refused for it.
func asIs(v string) string { return v }

// oneLine prevents an argument from starting another header.
func oneLine(v string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(v) }

func (f *filler) rest() map[string]any {
	rest := map[string]any{}
	for name, v := range f.args {
		if !f.used[name] {
			rest[name] = v
		}
	}
	return rest
}

// redact removes the secrets of the call from a text, in case a server repeats them.
func (f *filler) redact(text string) string { return secret.Redact(text, f.secrets...) }

// plain returns a value as text: strings unchanged, others as JSON.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
