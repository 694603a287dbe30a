package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/internal/secret"
)

// longestRetryAfter bounds the delay that a server may request.
const longestRetryAfter = 24 * time.Hour

// longestMessage bounds the text of an error, in bytes.
const longestMessage = 1000

// Direct returns a copy of c, or a client without timeouts if c is nil, that follows no redirect: a redirect could send
// the conversation and the key to another server.
func Direct(c *http.Client) *http.Client {
	var direct http.Client
	if c != nil {
		direct = *c
	}
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &direct
}

// Endpoint returns the URL and the key for a request to a provider, whose own address is baseURL and whose key is
// apiKey. A request without an address, or with exactly baseURL, goes to baseURL, with apiKey if it has no key of its
// own. A request with another address gets only its own key: the provider's key is never sent to another server that an
// agent's definition names. The error is a *Error.
func (r Request) Endpoint(provider, baseURL, apiKey string) (*url.URL, string, error) {
	base, key := r.BaseURL, r.APIKey
	if base == "" || base == baseURL {
		base = baseURL
		if key == "" {
			key = apiKey
		}
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, "", &Error{Class: InvalidRequest, Provider: provider, Message: "base_url is not a URL: write one such as https://example.com/v1"}
	}
	return u, key, nil
}

// longestStream bounds the stream of one response, in bytes. The longest response of a
// current model, 128,000 tokens in an event each, is some 40 MB.
const longestStream = 64 << 20

// maxStreamLines bounds the lines of the stream of one response: an event costs some microseconds to decode, however
// small it is. The 128,000 events of the longest response have up to four lines each.
const maxStreamLines = 1 << 20

// boundedBody is a body that returns a *Error after longestStream bytes or maxStreamLines lines, or when its response
// keeps too much.
type boundedBody struct {
	io.ReadCloser

	provider string
	left     int64
	lines    int
	receipt  *Receipt
	line     int // bytes of the current line
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, &Error{Class: InvalidRequest, Provider: b.provider, Message: fmt.Sprintf("the model's server streamed more than %d MiB for one response: lower max_output_tokens", longestStream>>20)}
	}
	if b.lines += bytes.Count(p[:n], []byte("\n")); b.lines > maxStreamLines {
		return 0, &Error{Class: InvalidRequest, Provider: b.provider, Message: fmt.Sprintf("the model's server streamed more than %d lines for one response: check base_url, or lower max_output_tokens", maxStreamLines)}
	}
	b.count(p[:n])
	if failed := b.receipt.failure(b.provider); failed != nil {
		return 0, failed
	}
	return n, err
}

// count reports long lines to the receipt.
func (b *boundedBody) count(p []byte) {
	if b.receipt == nil {
		return
	}
	for len(p) > 0 {
		n := bytes.IndexByte(p, '\n') + 1
		ended := n > 0
		if !ended {
			n = len(p)
		}
		if b.line += n; b.line > longEvent {
			b.receipt.Keep(n)
		}
		if ended {
			b.line = 0
		}
		p = p[n:]
	}
}

// receiptOf returns the receipt of the call that sent r, or nil.
func receiptOf(r *http.Request) *Receipt {
	if r == nil {
		return nil
	}
	return ReceiptFrom(r.Context())
}

// CheckHTTP returns nil for a response with status 2xx that is neither JSON nor a web page, so that it may be a stream;
// reads of its body then fail with a *Error after 64 MiB or 1,048,576 lines, or when the [Receipt] of the call is
// exceeded. Otherwise it closes the body and returns the reason as a *Error. Adapters call it in a middleware of the
// provider's SDK, because the SDKs drop the status if the body is not in the provider's format.
func CheckHTTP(provider, key string, resp *http.Response) error {
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if ok && media == "text/html" {
		_ = resp.Body.Close()
		return &Error{Class: Transport, Provider: provider, Status: resp.StatusCode, Message: "the server answered with a web page instead of a model's response: check base_url"}
	}
	if ok && media != "application/json" {
		resp.Body = &boundedBody{ReadCloser: resp.Body, provider: provider, left: longestStream, receipt: receiptOf(resp.Request)}
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
	if err != nil && len(body) == 0 {
		return &Error{Class: Transport, Provider: provider, Status: resp.StatusCode, Message: "the connection to the model broke during its answer: check the network between the workers and the provider", Err: plainCause(err)}
	}
	if ok && !bytes.Contains(body, []byte(`"error"`)) {
		return &Error{Class: Transport, Provider: provider, Status: resp.StatusCode, Message: "the model's server answered without streaming: check that base_url supports it"}
	}
	return Classify(Failure{Provider: provider, Secret: key, Status: resp.StatusCode, Header: resp.Header, Body: body})
}

// Broken returns the *Error for a call that ended without an answer from the provider. If ctx has ended, that is
// Timeout or Cancelled, whatever err is. Otherwise, if err is or wraps a *Error, Broken returns that one. A nil err
// means that the stream ended early: the class is Transport. Any other err means that the connection broke, or took
// too long: Timeout if err says that it is a timeout, else Transport.
func Broken(ctx context.Context, provider, key string, err error) *Error {
	if cause := ctx.Err(); cause != nil {
		return Interrupted(provider, cause)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if err == nil {
		return &Error{Class: Transport, Provider: provider, Message: "the model's stream ended before the response was complete: check base_url, and proxies that cut long responses", Err: io.ErrUnexpectedEOF}
	}
	cause := plainCause(err)
	class := Transport
	var timeout interface{ Timeout() bool }
	if errors.As(cause, &timeout) && timeout.Timeout() {
		class = Timeout
	}
	return &Error{Class: class, Provider: provider, Message: Redact(cause.Error(), key), Err: sentinel(cause)}
}

// Interrupted returns the error of a call whose context ended with cause: Timeout after its deadline, otherwise
// Cancelled.
func Interrupted(provider string, cause error) *Error {
	class, message := Cancelled, cause.Error()
	if errors.Is(cause, context.DeadlineExceeded) {
		class, message = Timeout, "the response was not complete within the time limit of the call: raise model.timeout of the agent, or request a shorter answer"
	}
	return &Error{Class: class, Provider: provider, Message: message, Err: sentinel(cause)}
}

// plainCause removes the URL from an error, because it may contain a secret.
func plainCause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// sentinel returns the well-known error in the chain of err, or nil. It drops all others, because errors of the SDKs
// contain the request with its headers.
func sentinel(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF, syscall.ECONNRESET} {
		if errors.Is(err, known) {
			return known
		}
	}
	return nil
}

var keyLike = regexp.MustCompile(`\b((sk|pk|rk|xai|gsk)-|AIza)[A-Za-z0-9_*\-]{6,}`)

// Redact removes key, and texts that look like API keys, from a text, and cuts the text at 1,000 bytes.
func Redact(text, key string) string {
	text = keyLike.ReplaceAllString(secret.Redact(text, key), secret.Redacted)
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > longestMessage {
		cut := longestMessage
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}

// retryText finds a delay in the messages of OpenAI ("try again in 6m0s", "in 250ms"), Google ("retry in 7.5s") and
// Azure ("retry after 6 seconds").
var retryText = regexp.MustCompile(`(?i)(?:(?:try again|retry) in|retry after) ((?:\d+(?:\.\d+)?(?:ms|h|m|s))+|\d+(?:\.\d+)? ?(milliseconds?|seconds?|minutes?))`)

// retryAfter returns the delay in the headers, else that in the body, else that in the message, else 0. It is at most a
// day.
func retryAfter(h http.Header, delay, message string) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	if v := h.Get("Retry-After"); v != "" {
		if s, err := strconv.ParseFloat(v, 64); err == nil {
			return seconds(s)
		}
		if at, err := http.ParseTime(v); err == nil {
			// Use the server's clock if it reports one.
			now, err := http.ParseTime(h.Get("Date"))
			if err != nil {
				now = time.Now()
			}
			return seconds(at.Sub(now).Seconds())
		}
	}
	if d, err := time.ParseDuration(delay); err == nil {
		return seconds(d.Seconds())
	}
	m := retryText.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	if m[2] == "" {
		d, err := time.ParseDuration(strings.ToLower(m[1]))
		if err != nil {
			return 0
		}
		return seconds(d.Seconds())
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(m[1], m[2])), 64)
	if err != nil {
		return 0
	}
	switch strings.ToLower(m[2][:2]) {
	case "mi":
		if strings.HasPrefix(strings.ToLower(m[2]), "milli") {
			return seconds(n / 1000)
		}
		return seconds(n * 60)
	default:
		return seconds(n)
	}
}

func seconds(s float64) time.Duration {
	if math.IsNaN(s) || s <= 0 {
		return 0
	}
	return time.Duration(min(s, longestRetryAfter.Seconds()) * float64(time.Second))
}
