package a2atool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	discovery = 5 * time.Second // time to read the agent's card
	pollEvery = time.Second     // between two reads of a task that has not finished
	goodbye   = 2 * time.Second // time to cancel a task
)

type remote struct {
	url    string
	token  string
	client *http.Client
}

// Caller is the kind of tools that call remote agents over A2A. It is safe for concurrent use.
type Caller struct {
	tool.Plain

	client *http.Client
}

var _ tool.Kind = (*Caller)(nil)

// New returns a Caller that makes all requests with client, which must keep tools from reaching what only the worker
// may.
func New(client *http.Client) *Caller { return &Caller{client: client} }

// Spec implements tool.Kind.
func (*Caller) Spec() tool.Spec { return toolspec.A2ASpec }

// Call implements tool.Kind.
func (c *Caller) Call(ctx context.Context, t tool.Bound, call tool.Call) (tool.Result, error) {
	s, ok := t.Settings.(*toolspec.Remote)
	if !ok {
		return tool.Result{}, fmt.Errorf("the settings of the tool have the unexpected type %T. Continue without the tool; the operator must report this bug in Turnpike", t.Settings)
	}
	token := ""
	if name, ok := strings.CutPrefix(s.Token, "secret://"); ok {
		var err error
		if token, err = t.Secret(name, toolspec.HostPort(s.URL)); err != nil {
			return tool.Error(err.Error()), nil
		}
	}
	return c.Agent(s.URL, token).Call(ctx, call)
}

// Agent returns the tool of the agent whose card is at address. If token is not empty, requests have it as a bearer
// token, but only those to the host of address.
func (c *Caller) Agent(address, token string) tool.Tool {
	next := c.client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	own := *c.client
	own.Transport = &transport{token, next}
	// A redirect would carry the task, and the token, to another server.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &remote{address, token, &own}
}

// transport adds the token to requests and limits the size of responses.
type transport struct {
	token string
	next  http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	if parent, _ := r.Context().Value(traceKey{}).(string); parent != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Traceparent", parent)
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit, _ := r.Context().Value(limitKey{}).(int)
	resp.Body = tool.LimitBody(resp.Body, tool.AnswerBytes(limit))
	return resp, nil
}

// traceKey is the context key of the W3C trace context of a call, for its requests. limitKey is that of the maximum
// size of its result in bytes.
type (
	traceKey struct{}
	limitKey struct{}
)

// Call sends the task and waits until the agent has ended it. If the agent asks for input or a login, Call asks it to
// cancel the task. If ctx ends, Call does so only if the agent has already returned a task that it has not ended. Call
// removes the token of the tool from the result, in case the agent repeats it. A failure is a result for the model; the
// error is that of ctx.
func (r *remote) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	ctx = context.WithValue(ctx, limitKey{}, c.Limit())
	result, err := r.call(context.WithValue(ctx, traceKey{}, c.TraceParent), c)
	result.Content = secret.Redact(result.Content, r.token)
	return result, err
}

func (r *remote) call(ctx context.Context, c tool.Call) (tool.Result, error) {
	client, err := r.connect(ctx)
	if err != nil {
		return r.failed(ctx, err, "The agent has not received the task. Continue without the tool, or call it again later")
	}
	defer func() { _ = client.Destroy() }()
	message := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(task(c.Arguments)))
	message.ID, message.ContextID = c.IdempotencyKey, ""
	answer, err := client.SendMessage(ctx, &a2a.SendMessageRequest{Message: message})
	if err != nil {
		return r.failed(ctx, err, uncertain)
	}
	switch answer := answer.(type) {
	case *a2a.Message:
		return tool.Result{Content: text(answer.Parts)}, nil
	case *a2a.Task:
		return r.follow(ctx, client, answer)
	default:
		return tool.Error(fmt.Sprintf("The agent at %s answered with neither a message nor a task. Continue without the tool", r.url)), nil
	}
}

// connect reads the agent's card and returns a client for an address in it. All of its addresses must have the scheme
// and the host of the definition: a card must not redirect tasks elsewhere.
func (r *remote) connect(ctx context.Context) (*a2aclient.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, discovery)
	defer cancel()
	card, err := agentcard.NewResolver(r.client).Resolve(ctx, r.url)
	if err != nil {
		return nil, fmt.Errorf("the agent's card cannot be read: %w", err)
	}
	home, err := url.Parse(r.url)
	if err != nil {
		return nil, err
	}
	for _, i := range card.SupportedInterfaces {
		if at, err := url.Parse(i.URL); err != nil || at.Host != home.Host || at.Scheme != home.Scheme {
			return nil, fmt.Errorf("the agent's card names the server %s, but the url of the tool is at %s://%s, so an owner must correct one of them", i.URL, home.Scheme, home.Host)
		}
	}
	return a2aclient.NewFromCard(ctx, card, a2aclient.WithJSONRPCTransport(r.client), a2aclient.WithRESTTransport(r.client))
}

// follow waits for the end of a task that the agent has not finished yet.
func (r *remote) follow(ctx context.Context, client *a2aclient.Client, t *a2a.Task) (tool.Result, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		switch state := t.Status.State; {
		case state == a2a.TaskStateCompleted:
			return tool.Result{Content: result(t)}, nil
		case state == a2a.TaskStateInputRequired:
			r.cancel(ctx, client, t.ID)
			return tool.Error("The agent asks for more input, which its task cannot get, so the worker asked it to cancel the task. Call the tool again with the whole task and the answer to this: " + demand(t)), nil
		case state == a2a.TaskStateAuthRequired:
			r.cancel(ctx, client, t.ID)
			return tool.Error("The agent requires a login that cannot be given here, so the worker asked it to cancel the task. Continue without the tool. The agent says: " + demand(t)), nil
		case state.Terminal():
			return tool.Error(fmt.Sprintf("The remote agent ended its task with the state %s. Continue without its result, or call the tool with another task. The agent says: %s", strings.ToLower(strings.TrimPrefix(string(state), "TASK_STATE_")), demand(t))), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.cancel(ctx, client, t.ID)
			return tool.Result{}, ctx.Err()
		}
		next, err := client.GetTask(ctx, &a2a.GetTaskRequest{ID: t.ID})
		if err != nil {
			if ctx.Err() != nil {
				r.cancel(ctx, client, t.ID)
			}
			return r.failed(ctx, err, uncertain)
		}
		t = next
	}
}

// cancel asks the agent to stop a task whose result is no longer needed, within the time goodbye. It ignores errors.
func (r *remote) cancel(ctx context.Context, client *a2aclient.Client, id a2a.TaskID) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer stop()
	_, _ = client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: id})
}

// uncertain is what a model reads about a failure after the task was sent.
const uncertain = "The agent may have executed the task: check that before you call the tool again"

// failed converts a failure to a result for the model (A7), which ends with advice, or returns the error of ctx if that
// has ended.
func (r *remote) failed(ctx context.Context, err error, advice string) (tool.Result, error) {
	if ctx.Err() != nil {
		return tool.Result{}, ctx.Err()
	}
	var status *agentcard.ErrStatusNotOK
	if errors.As(err, &status) {
		return tool.Error(fmt.Sprintf("The server at %s answered the request for its agent card with %s. Continue without the tool, or have its url or the server corrected", r.url, status.Status)), nil
	}
	if large, ok := errors.AsType[*tool.TooLargeError](err); ok {
		err = large
	}
	return tool.Error(fmt.Sprintf("The call of the agent at %s failed: %v. %s", r.url, err, advice)), nil
}

// task returns the message to the agent: the argument "task" if that is the only one, else all arguments as JSON.
func task(arguments json.RawMessage) string {
	var args map[string]any
	if json.Unmarshal(arguments, &args) == nil && len(args) == 1 {
		if text, ok := args["task"].(string); ok {
			return text
		}
	}
	return string(arguments)
}

// demand returns the text with which an agent interrupts a task: that of the last status message, or else the result.
func demand(t *a2a.Task) string {
	said := ""
	if t.Status.Message != nil {
		said = text(t.Status.Message.Parts)
	}
	return cmp.Or(said, result(t), "(no text)")
}

// result returns the text of a task's artifacts, or else of its last status message.
func result(t *a2a.Task) string {
	var all []string
	for _, a := range t.Artifacts {
		if said := text(a.Parts); said != "" {
			all = append(all, said)
		}
	}
	if len(all) == 0 && t.Status.Message != nil {
		return text(t.Status.Message.Parts)
	}
	return strings.Join(all, "\n")
}

// text joins parts: texts unchanged, data as JSON, files as their URLs.
func text(parts []*a2a.Part) string {
	var all []string
	for _, p := range parts {
		switch {
		case p.Text() != "":
			all = append(all, p.Text())
		case p.Data() != nil:
			if b, err := json.Marshal(p.Data()); err == nil {
				all = append(all, string(b))
			}
		case p.URL() != "":
			all = append(all, string(p.URL()))
		}
	}
	return strings.Join(all, "\n")
}
