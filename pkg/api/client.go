package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// Client is a client of a gateway. It is safe for concurrent use. If the gateway responds with an error,
// that is a *[Problem], except for Ready. Other errors report an invalid URL or request, a failed
// connection, or a server that is not a gateway. The client does not retry requests, except that Events,
// Follow, Changes, Wait, Do and WaitBatch reconnect. It has many methods because each route has one.
type Client struct {
	url    string
	bad    error // not nil if the URL is invalid: the error of each call
	http   *http.Client
	token  string
	tenant string
}

// Option configures a Client.
type Option func(*Client)

// WithToken sets the credentials of a client: an API key, a token of a user, or a token of the OpenID provider of the
// gateway.
func WithToken(token string) Option { return func(c *Client) { c.token = token } }

// WithTenant names the tenant of each request. Only clients with roles in more than one tenant need it.
func WithTenant(tenant string) Option { return func(c *Client) { c.tenant = tenant } }

// WithRootCAs makes a client trust only the certificates of these authorities when it uses TLS; a nil pool has those of
// the system. If the caller's HTTP client has a transport other than an *http.Transport, each call returns an error
// that wraps ErrInvalid. The caller's transport is not changed.
func WithRootCAs(pool *x509.CertPool) Option {
	return func(c *Client) {
		given := cmp.Or(c.http.Transport, http.DefaultTransport)
		transport, ok := given.(*http.Transport)
		if !ok {
			c.bad = fmt.Errorf("%w: the root authorities cannot be set in a transport of type %T: omit WithRootCAs and set RootCAs in that transport, or use an *http.Transport", ErrInvalid, given)
			return
		}
		transport = transport.Clone()
		if transport.TLSClientConfig == nil {
			transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		transport.TLSClientConfig.RootCAs = pool
		own := *c.http
		own.Transport = transport
		c.http = &own
	}
}

// New returns a client of the gateway at url, such as http://127.0.0.1:7070, which is also the default for an empty
// url. http:// may be left out before a host and a port. If url is invalid, each call returns an error.
func New(url string, options ...Option) *Client {
	return NewWithHTTP(url, &http.Client{}, options...)
}

// NewWithHTTP is New with the caller's HTTP client, for certificates, proxies and credentials. A timeout of that client
// also ends streams of events.
func NewWithHTTP(url string, h *http.Client, options ...Option) *Client {
	base, err := addressOf(url)
	c := &Client{url: base, bad: err, http: h}
	for _, set := range options {
		set(c)
	}
	return c
}

// sign adds the credentials and the tenant to a request.
func (c *Client) sign(r *http.Request) {
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.tenant != "" {
		r.Header.Set("Turnpike-Tenant", c.tenant)
	}
}

// Text returns a text as a JSON string, for the input of a submission or a message.
func Text(text string) json.RawMessage {
	b, _ := json.Marshal(text) //nolint:errchkjson // a string has a form in JSON
	return b
}

// do makes one request and decodes the response into out, if not nil.
func (c *Client) do(ctx context.Context, method, path string, header http.Header, body []byte, out any) error {
	if c.bad != nil {
		return c.bad
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.send(req, out)
}

// send sends a request and decodes the response into out, if not nil.
func (c *Client) send(req *http.Request, out any) error {
	c.sign(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return problemOf(resp)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	b, err := answerOf(resp)
	if err != nil {
		return err
	}
	if json.Unmarshal(b, out) != nil {
		return foreign(resp, b)
	}
	return nil
}

func problemOf(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return brokenBody(resp, err)
	}
	p := &Problem{}
	if json.Unmarshal(b, p) != nil || p.Code == "" {
		unready := &unreadyError{host: resp.Request.URL.Host}
		if resp.StatusCode == http.StatusServiceUnavailable && json.Unmarshal(b, unready) == nil && unready.Status != "" {
			return unready
		}
		return foreign(resp, b)
	}
	p.RetryAfter, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return p
}

func send[T any](ctx context.Context, c *Client, method, path string, in any) (T, error) {
	var out T
	b, err := Encode(in)
	if err != nil {
		return out, err
	}
	return out, c.do(ctx, method, path, nil, b, &out)
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var out T
	return out, c.do(ctx, http.MethodGet, path, nil, nil, &out)
}

// pages reads all pages of a list. A gateway ends a page early if the items are large.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) (items []T, err error) {
	for {
		page, err := get[Page[T]](ctx, c, path+"?"+query.Encode())
		if err != nil {
			return items, err
		}
		items = append(items, page.Items...)
		if page.NextCursor == nil {
			return items, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

func runPath(id string) string { return "/v1/runs/" + url.PathEscape(id) }

// Submit submits a run. The run is durable when Submit returns nil. It does not exist after a *[Problem] with a Status
// below 500; after any other error it may exist. If an earlier submission had the same key and content, Submit returns
// its run; with other content the error has CodeIdempotencyConflict. A key is known for at least a week, unless its run
// is deleted. All callers of a tenant share these keys, except that each user of a token has keys of its own. Without a
// key each call makes a run.
func (c *Client) Submit(ctx context.Context, r SubmitRequest, key string) (Run, error) {
	var out Run
	b, err := Encode(r)
	if err != nil {
		return out, err
	}
	return out, c.do(ctx, http.MethodPost, "/v1/runs", keyHeader(key), b, &out)
}

func keyHeader(key string) http.Header {
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	return header
}

// Get reads a run.
func (c *Client) Get(ctx context.Context, id string) (Run, error) {
	return get[Run](ctx, c, runPath(id))
}

// List reads one page of runs. query has the parameters of GET /v1/runs.
func (c *Client) List(ctx context.Context, query url.Values) (Page[Run], error) {
	return get[Page[Run]](ctx, c, "/v1/runs?"+query.Encode())
}

// Messages returns the messages of a run that the model sees.
func (c *Client) Messages(ctx context.Context, id string) ([]Message, error) {
	page, err := get[Page[Message]](ctx, c, runPath(id)+"/messages")
	return page.Items, err
}

// AllMessages returns all messages of a run. Tombstoned or Compacted marks those that the model no longer sees.
func (c *Client) AllMessages(ctx context.Context, id string) ([]Message, error) {
	page, err := get[Page[Message]](ctx, c, runPath(id)+"/messages?view=full")
	return page.Items, err
}

// SessionEvents returns a run as a conversation: messages to the run, its calls with their results, delegations with
// their responses, and its answer.
func (c *Client) SessionEvents(ctx context.Context, id string) ([]SessionEvent, error) {
	page, err := get[Page[SessionEvent]](ctx, c, runPath(id)+"/messages?view=session")
	return page.Items, err
}

// Fork starts a run that shares the history of another run through r.Turn, with the changes in r. Each call makes a
// run.
func (c *Client) Fork(ctx context.Context, id string, r ForkRequest) (Run, error) {
	return c.ForkWithKey(ctx, id, r, "")
}

// ForkWithKey is Fork with an idempotency key: calls with the same key, run and content return the same new run.
func (c *Client) ForkWithKey(ctx context.Context, id string, r ForkRequest, key string) (Run, error) {
	var out Run
	b, err := Encode(r)
	if err != nil {
		return out, err
	}
	return out, c.do(ctx, http.MethodPost, runPath(id)+"/fork", keyHeader(key), b, &out)
}

// Export returns the messages that the model sees in another format, openai or anthropic. The result can be the input
// of a submission.
func (c *Client) Export(ctx context.Context, id, format string) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, runPath(id)+"/messages?format="+url.QueryEscape(format))
}

// Turns returns the audit trail of a run: one row for each turn.
func (c *Client) Turns(ctx context.Context, id string) ([]Turn, error) {
	page, err := get[Page[Turn]](ctx, c, runPath(id)+"/turns")
	return page.Items, err
}

// Cancel aborts a run with all its descendants, and returns its current state: it may take a moment to end.
// Submitters may cancel runs that they have submitted, operators any, and tokens of users those that they may see. The
// error has CodeRunFinished if the run has ended.
func (c *Client) Cancel(ctx context.Context, id, reason string) (Run, error) {
	return send[Run](ctx, c, http.MethodPost, runPath(id)+"/cancel", CancelRequest{Reason: reason})
}

// Delete deletes a run that has ended, with all its descendants. The error has CodeRunInFlight while one of them has
// not ended, or if the run has a parent.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, runPath(id), nil, nil, nil)
}

// Signal sends a signal to a run and returns the run, which may not have processed the signal yet. A signal with the
// SignalID of one of the latest 1,000 signals of the run changes nothing, even if its content is another. All callers
// of a tenant share their ids, except that each user of a token has ids of its own. Without a SignalID each call sends
// another signal.
func (c *Client) Signal(ctx context.Context, id string, s SignalRequest) (Run, error) {
	return send[Run](ctx, c, http.MethodPost, runPath(id)+"/signals", s)
}

// PutAgent stores a definition, in JSON or YAML, as the next version of an agent. A definition that equals the
// latest version makes no version, unless a run has used that version and its tools come from a source that lists
// them, such as an MCP server. In a tenant with TenantSettings.Review a new definition becomes a draft: the result
// has StatusDraft, and runs cannot use the draft until an author or an admin who has not saved it publishes it.
func (c *Client) PutAgent(ctx context.Context, name string, definition []byte) (SavedAgent, error) {
	var out SavedAgent
	return out, c.do(ctx, http.MethodPut, "/v1/agents/"+url.PathEscape(name), nil, definition, &out)
}

// AgentDrafts returns the drafts that wait for review, by name.
func (c *Client) AgentDrafts(ctx context.Context) ([]AgentDraft, error) {
	return pages[AgentDraft](ctx, c, "/v1/agents", url.Values{"status": {StatusDraft}})
}

// AgentDraft returns the draft of an agent. The error has CodeDraftNotFound if none waits for review.
func (c *Client) AgentDraft(ctx context.Context, name string) (AgentDraft, error) {
	return get[AgentDraft](ctx, c, "/v1/agents/"+url.PathEscape(name)+"/draft")
}

// PublishAgent makes the draft with this hash a version that runs may use. None of the draft's Authors may publish it:
// CodeForbidden. If the draft has changed since the caller read it, the error has CodeStaleDraft.
func (c *Client) PublishAgent(ctx context.Context, name, hash string) (Agent, error) {
	return send[Agent](ctx, c, http.MethodPost, "/v1/agents/"+url.PathEscape(name)+"/publish", PublishRequest{Hash: hash})
}

// DiscardAgentDraft deletes the draft of an agent.
func (c *Client) DiscardAgentDraft(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/agents/"+url.PathEscape(name)+"/draft", nil, nil, nil)
}

// Agent returns the latest version of an agent.
func (c *Client) Agent(ctx context.Context, name string) (Agent, error) {
	return get[Agent](ctx, c, "/v1/agents/"+url.PathEscape(name))
}

// Agents returns the latest versions of all agents, by name.
func (c *Client) Agents(ctx context.Context) ([]Agent, error) {
	return pages[Agent](ctx, c, "/v1/agents", url.Values{})
}

// DeleteAgent deletes an agent. Its runs continue. Its numbered versions stay, and runs that name one can still be
// submitted.
func (c *Client) DeleteAgent(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/agents/"+url.PathEscape(name), nil, nil, nil)
}

// Ready returns nil if the gateway and its store can serve requests, even if the gateway is degraded: see Readiness.
// Otherwise the error names what does not answer.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/readyz", nil, nil, nil)
}

// Readiness returns the state of the gateway and of its dependencies. Its Status is "degraded" if the bus does not
// answer or accepts no writes, or if the deployment waits for a decision about its store. It is "unavailable" or
// "draining" if the gateway is not ready. An error means that no gateway answered, or that it refused the request.
func (c *Client) Readiness(ctx context.Context) (Readiness, error) {
	ready, err := get[Readiness](ctx, c, "/readyz")
	if e, ok := errors.AsType[*unreadyError](err); ok {
		return e.Readiness, nil
	}
	return ready, err
}

// unreadyError is the answer of a gateway that is not ready.
type unreadyError struct {
	Readiness
	host string
}

func (e *unreadyError) Error() string {
	if e.Status == "draining" {
		return fmt.Sprintf("the gateway at %s is shutting down: retry later, or use another gateway", e.host)
	}
	for _, f := range e.Findings {
		if e.Store == "ok" && f.Fatal && !f.OK {
			return fmt.Sprintf("the gateway at %s is %s (%s: %s): %s", e.host, e.Status, f.Name, f.Detail, f.Remedy)
		}
	}
	return fmt.Sprintf("the gateway at %s is %s (store: %s, bus: %s): repair what does not answer, or retry later", e.host, e.Status, e.Store, e.Bus)
}

// Dead returns the dead letters with numbers above after, oldest first, at most limit; the default of limit 0 is the
// gateway's.
func (c *Client) Dead(ctx context.Context, after uint64, limit int) (Page[DeadLetter], error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return get[Page[DeadLetter]](ctx, c, "/v1/dead?"+q.Encode())
}

// DeadLetter returns one dead letter. The error has CodeLetterNotFound if it does not exist.
func (c *Client) DeadLetter(ctx context.Context, seq uint64) (DeadLetter, error) {
	return get[DeadLetter](ctx, c, fmt.Sprintf("/v1/dead/%d", seq))
}

// Replay replays a dead letter: it continues its run, submits its submission again, or delivers its event or message
// again. Except for the events of webhooks, replaying a letter again changes nothing. The error has CodeNotReplayable
// if the Status of the letter is DeadClosed.
func (c *Client) Replay(ctx context.Context, seq uint64) (DeadLetter, error) {
	return send[DeadLetter](ctx, c, http.MethodPost, fmt.Sprintf("/v1/dead/%d/replay", seq), struct{}{})
}
