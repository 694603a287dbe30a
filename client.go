package turnpike

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Types of other packages that methods here take or return.
type (
	Agent     = agent.Definition  // an agent, with the fields and checks of YAML
	Model     = agent.Model       // the model of an Agent
	Call      = tool.Call         // one call of a tool
	Outcome   = tool.Outcome      // what a probe found: tool.Done, tool.NotDone, tool.Unknown
	Event     = api.Event         // one event of a run
	Info      = api.Run           // a run as it stands
	Filter    = api.Filter        // selects runs
	Saved     = api.SavedAgent    // a version of an agent
	Fork      = api.ForkRequest   // what a fork changes
	Signal    = api.SignalRequest // a message to a run
	Limits    = api.SubmitLimits  // limits of one run
	BatchInfo = api.Batch         // a batch as it stands
	Principal = api.Principal     // a person or a service
	Role      = api.Role          // a permission of a Principal
	Message   = state.Message     // a message of a history
	Priority  = state.Priority    // the lane of a run
)

// Client submits runs and reads them. A [Deployment] has one that needs no connection to a gateway; [Dial] returns one
// that uses HTTP. Both have the same results and errors: an [*Error] for a refused request, ErrUnavailable for a server
// that does not answer, a broken connection or a proxy that fails, ErrClosed after [Deployment.Close], and the error of
// a context that has ended. A server that is no gateway gives another error. A Client is safe for concurrent use.
type Client struct {
	api     backend
	closing context.Context //nolint:containedctx // ends with the Deployment; nil: never
}

// backend makes the requests of a Client: an [api.Client] over HTTP, or a client of this process.
type backend interface {
	runs
	batches
	files

	PutAgent(ctx context.Context, name string, definition []byte) (Saved, error)
}

type runs interface {
	Submit(ctx context.Context, r api.SubmitRequest, key string) (Info, error)
	ForkWithKey(ctx context.Context, id string, r Fork, key string) (Info, error)
	Get(ctx context.Context, id string) (Info, error)
	List(ctx context.Context, query url.Values) (api.Page[Info], error)
	Messages(ctx context.Context, id string) ([]Message, error)
	Events(ctx context.Context, id string, after int64) iter.Seq2[Event, error]
	Signal(ctx context.Context, id string, s Signal) (Info, error)
	Cancel(ctx context.Context, id, reason string) (Info, error)
	Delete(ctx context.Context, id string) error
}

type batches interface {
	SubmitBatch(ctx context.Context, r api.BatchRequest, key string) (api.BatchAccepted, error)
	Batch(ctx context.Context, id string) (BatchInfo, error)
	WaitBatch(ctx context.Context, id string, each func(BatchInfo, Info)) (BatchInfo, error)
}

// bound returns a context that ends with ctx or with the Deployment, for calls that reconnect. The caller must call the
// returned function.
func (c *Client) bound(ctx context.Context) (context.Context, func()) {
	if c.closing == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// DialOptions configure Dial. The zero value connects without a token.
type DialOptions struct {
	Token  string // an API key, or a token of the gateway's OpenID provider
	Tenant string // of a caller with roles in several tenants; default: the only tenant, or the default one of the gateway

	// RootCAs are the authorities that the client trusts. Default: those of the system.
	RootCAs *x509.CertPool

	// HTTP makes the requests. A timeout of it would end streams of events. Default: a new one.
	HTTP *http.Client
}

// Dial returns a client of the gateway at url, such as https://tp.example.com or 127.0.0.1:7070, which stands for
// http://127.0.0.1:7070. An empty url is http://127.0.0.1:7070. Dial makes no request. The error is ErrInvalid if url
// cannot be the address of a gateway, or if RootCAs cannot be set because the transport of o.HTTP is not an
// *http.Transport.
func Dial(url string, o DialOptions) (*Client, error) {
	options := []api.Option{api.WithToken(o.Token), api.WithTenant(o.Tenant)}
	if o.RootCAs != nil {
		options = append(options, api.WithRootCAs(o.RootCAs))
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{}
	}
	c := api.NewWithHTTP(url, o.HTTP, options...)
	if err := c.Valid(); err != nil {
		return nil, cause(context.Background(), err)
	}
	return &Client{api: c}, nil
}

// PutAgent stores a version of an agent. A definition that equals the latest version makes no new one, unless its tools
// come from a source that lists them, such as an MCP server, and a run has used that version: the new version lists
// them again. In a tenant with review, PutAgent stores a draft instead of a new version, with Saved.Status "draft"; no
// run uses the draft until an author or an admin who has not saved it publishes it. The error is ErrInvalid if the
// definition has mistakes.
func (c *Client) PutAgent(ctx context.Context, a Agent) (Saved, error) {
	b, err := json.Marshal(a)
	if err != nil {
		return Saved{}, invalid("agent %q cannot be encoded as JSON: set its fields to values that encoding/json accepts: %v", a.Name, err)
	}
	return c.put(ctx, a.Name, b)
}

// PutYAML is PutAgent with a definition in YAML or JSON. The definition must have a name.
func (c *Client) PutYAML(ctx context.Context, text []byte) (Saved, error) {
	a, err := agent.Parse(text)
	if err != nil {
		return Saved{}, invalid("%v", err)
	}
	return c.put(ctx, a.Name, text)
}

func (c *Client) put(ctx context.Context, name string, text []byte) (saved Saved, err error) {
	if name == "" {
		return Saved{}, invalid("the agent has no name: set its field name")
	}
	return saved, retry(ctx, func() (err error) {
		saved, err = c.api.PutAgent(ctx, name, text)
		return err
	})
}

// Submit stores a run and returns its handle. The run is durable when Submit returns. ctx bounds the call and not the
// run. The error is ErrConflict if s.Key was used with other content.
func (c *Client) Submit(ctx context.Context, s Submission) (*Run, error) {
	in, err := s.request()
	if err != nil {
		return nil, err
	}
	if s.Key == "" {
		s.Key = rand.Text()
	}
	var made Info
	err = retry(ctx, func() (err error) {
		made, err = c.api.Submit(ctx, in, s.Key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.RunByID(made.ID), nil
}

// SubmitBatch stores 1 to 1,000 runs, whose own Keys must be empty. The gateway checks all of them before it stores the
// first one. If SubmitBatch fails, for example because a server does not answer, some of the runs may be stored, and
// these execute: another call with the same Key and the same runs completes the batch. Without a Key in b, another call
// makes another batch.
func (c *Client) SubmitBatch(ctx context.Context, b Batch) (*BatchRun, error) {
	in := api.BatchRequest{Runs: make([]api.SubmitRequest, len(b.Runs)), MaxParallel: b.MaxParallel, CountWaiting: b.CountWaiting}
	for i, s := range b.Runs {
		if s.Key != "" {
			return nil, invalid("Runs[%d].Key is %q, but runs of a batch have no keys: remove it, and set Batch.Key", i, s.Key)
		}
		var err error
		if in.Runs[i], err = s.request(); err != nil {
			return nil, err
		}
	}
	if b.Key == "" {
		b.Key = rand.Text()
	}
	var made api.BatchAccepted
	err := retry(ctx, func() (err error) {
		made, err = c.api.SubmitBatch(ctx, in, b.Key)
		return err
	})
	if err != nil {
		return nil, err
	}
	batch := &BatchRun{c: c, id: made.BatchID}
	for _, id := range made.RunIDs {
		batch.runs = append(batch.runs, c.RunByID(id))
	}
	return batch, nil
}

// RunByID returns a handle to a run. It makes no request; the methods of the handle return ErrNotFound if the run
// does not exist, and ErrInvalid if id is not the id of a run.
func (c *Client) RunByID(id string) *Run { return &Run{c: c, id: id} }

// Runs yields the runs that f selects, newest first. If a request fails, the last pair has the error.
func (c *Client) Runs(ctx context.Context, f Filter) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for q := f.Query(); ; {
			page, err := c.api.List(ctx, q)
			if err != nil {
				yield(Info{}, cause(ctx, err))
				return
			}
			for _, i := range page.Items {
				if !yield(i, nil) {
					return
				}
			}
			if page.NextCursor == nil {
				return
			}
			q.Set("cursor", *page.NextCursor)
		}
	}
}
