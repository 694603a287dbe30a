package turnpike_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// ways is a deployment that accepts requests over HTTP, over NATS and in the process, and the callers that make
// them: one for each name, with the same rights in each way.
type ways struct {
	t     *testing.T
	d     *turnpike.Deployment
	nc    *nats.Conn
	url   string
	admin *api.Client // of the tenant default
	acme  *api.Client // of the tenant acme
	keys  map[string]api.NewKey
}

func newWays(t *testing.T) *ways {
	nc := testbed.NATS(t)
	d := open(t, func(o *turnpike.Options) { o.NATS = turnpike.NATS{Conn: nc} })
	w := &ways{t: t, d: d, nc: nc, keys: map[string]api.NewKey{}}
	g, err := d.NewGateway(turnpike.GatewayOptions{Auth: d.KeyAuth()})
	if err != nil {
		t.Fatal(err)
	}
	unlocked, err := d.NewGateway(turnpike.GatewayOptions{Auth: turnpike.NoAuth()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	server, adminServer := httptest.NewServer(g), httptest.NewServer(unlocked)
	t.Cleanup(func() {
		stop()
		for _, s := range []*httptest.Server{server, adminServer} {
			s.CloseClientConnections()
			s.Close()
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.url = server.URL
	w.admin = api.NewWithHTTP(adminServer.URL, adminServer.Client())
	w.acme = api.NewWithHTTP(adminServer.URL, adminServer.Client(), api.WithTenant("acme"))
	for name, k := range map[string]api.KeyRequest{
		"submitter": {Roles: []string{"submitter"}}, "another": {Roles: []string{"submitter"}}, "operator": {Roles: []string{"operator"}}, "viewer": {Roles: []string{"viewer"}},
		"approver": {Roles: []string{"approver"}}, "all": {Roles: []string{"submitter", "viewer", "operator"}}, "suspended": {Roles: []string{"submitter", "approver", "author", "operator"}, Tenant: "acme"},
	} {
		key, err := w.admin.CreateKey(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		w.keys[name] = key
	}
	return w
}

// client returns the client of a caller in the process, or over HTTP.
func (w *ways) client(caller string, inside bool) *turnpike.Client {
	key := w.keys[caller]
	if inside {
		roles := make([]turnpike.Role, len(key.Roles))
		for i, r := range key.Roles {
			roles[i] = turnpike.Role(r)
		}
		return w.d.As(turnpike.Principal{Name: "key:" + key.ID, Tenant: key.Tenant, Roles: roles})
	}
	c, err := turnpike.Dial(w.url, turnpike.DialOptions{Token: key.Key})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// publish sends a message to a subject of the caller's tenant. It returns the problem in the reply, or nil once
// taken reports that the request was executed.
func (w *ways) publish(t *testing.T, caller, subject, key string, body []byte, taken func() bool) error {
	t.Helper()
	inner := "turnpike."
	if tenant := w.keys[caller].Tenant; tenant != "default" {
		inner += "t." + tenant + "."
	}
	answers, err := w.nc.SubscribeSync(inner + "reply." + nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	m := nats.NewMsg(inner + subject)
	m.Data = body
	m.Header.Set("Turnpike-Token", w.keys[caller].Key)
	m.Header.Set("Turnpike-Reply", answers.Subject)
	if key != "" {
		m.Header.Set(nats.MsgIdHdr, key)
	}
	// A stream must store the message.
	if _, err := w.nc.RequestMsgWithContext(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	var refusal error
	testbed.Eventually(t, "a message is taken or refused", func() error {
		answer, err := answers.NextMsg(time.Millisecond)
		if err == nil {
			var p turnpike.Error
			if err := json.Unmarshal(answer.Data, &p); err != nil || p.Code == "" {
				return fmt.Errorf("answer %s", answer.Data)
			}
			refusal = &p
			return nil
		}
		if taken() {
			return nil
		}
		return errors.New("it is not")
	})
	return refusal
}

// skinSubmission is a request for a run by a caller.
type skinSubmission struct {
	caller string
	twice  string // input of an earlier submission under the same key; empty: none
	then   string // the definition of the agent since that submission, "deleted", or empty: unchanged
	req    api.SubmitRequest
	code   string // of the refusal, or empty
}

func skinSubmissions() map[string]skinSubmission {
	hour := model.Duration(time.Hour)
	plain := func(change func(*api.SubmitRequest)) api.SubmitRequest {
		r := api.SubmitRequest{Agent: "plain", Input: api.Text("Hello."), Delay: hour, Priority: "low"}
		if change != nil {
			change(&r)
		}
		return r
	}
	of := func(agent string) api.SubmitRequest {
		return plain(func(r *api.SubmitRequest) { r.Agent = agent })
	}
	const strict = `{"instructions":"Greet {{who}}.","variables":{"type":"object","required":["who"],"properties":{"who":{"type":"string"}}},
		"model":{"provider":"scripted","responses":[{"text":"Hello."}]}}`
	return map[string]skinSubmission{
		"once more without its agent":          {caller: "submitter", req: of("gone"), twice: "Hello.", then: "deleted"},
		"once more with new variables":         {caller: "submitter", req: of("strict"), twice: "Hello.", then: strict},
		"other content without its agent":      {caller: "submitter", req: of("gone2"), twice: "Good bye.", then: "deleted", code: api.CodeIdempotencyConflict},
		"other content with new variables":     {caller: "submitter", req: of("strict2"), twice: "Good bye.", then: strict, code: api.CodeIdempotencyConflict},
		"once more without the role or agent":  {caller: "viewer", req: of("gone3"), then: "deleted", code: api.CodeForbidden},
		"first with new variables under a key": {caller: "submitter", req: of("strict3"), then: strict, code: api.CodeInvalidRequest},
		"a run":                                {caller: "submitter", req: plain(nil)},
		"once more":                            {caller: "submitter", req: plain(nil), twice: "Hello."},
		"other content":                        {caller: "submitter", req: plain(nil), twice: "Good bye.", code: api.CodeIdempotencyConflict},
		"no role":                              {caller: "viewer", req: plain(nil), code: api.CodeForbidden},
		"suspended tenant":                     {caller: "suspended", req: plain(nil), code: api.CodeTenantSuspended},
		"no such agent":                        {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.Agent = "nobody" }), code: api.CodeAgentNotFound},
		"no such version":                      {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.AgentVersion = 9 }), code: api.CodeAgentNotFound},
		"empty input":                          {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.Input = api.Text(" ") }), code: api.CodeInvalidRequest},
		"no such lane":                         {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.Priority = "urgent" }), code: api.CodeInvalidRequest},
		"negative delay":                       {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.Delay = -hour }), code: api.CodeInvalidRequest},
		"negative limit":                       {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.Limits = &api.SubmitLimits{MaxTurns: -1} }), code: api.CodeInvalidRequest},
		"malformed schema":                     {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.OutputSchema = json.RawMessage(`{"type":7}`) }), code: api.CodeInvalidRequest},
		"long metadata":                        {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.Metadata = map[string]string{"k": strings.Repeat("v", 5000)} }), code: api.CodeInvalidRequest},
		"long idempotency key":                 {caller: "submitter", req: plain(func(r *api.SubmitRequest) { r.Metadata = map[string]string{"key": "long"} }), code: api.CodeInvalidRequest},
	}
}

// A submission leads to the same run, or the same refusal, over HTTP, over NATS and in the process.
func TestSubmissionThroughEachSkin(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	put(t, w.d.Client, agentOf("plain", says("Hello.")...))
	w.suspend(t)
	for name, c := range skinSubmissions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[string]result{}
			for _, skin := range []string{"http", "go", "nats"} {
				key := strings.ReplaceAll(name+" "+skin, " ", "-")
				if c.req.Metadata["key"] == "long" {
					key += strings.Repeat("k", 300-len(key))
				}
				run := ""
				if c.then != "" {
					put(t, w.d.Client, agentOf(c.req.Agent, says("Hello.")...))
				}
				if c.twice != "" {
					before := submissionOf(c.req, key)
					before.Input = c.twice
					run = submit(t, w.client(c.caller, false), before).ID()
				}
				w.change(t, c)
				got[skin] = w.submit(t, skin, c, key, run)
			}
			for _, skin := range []string{"go", "nats"} {
				if diff := cmp.Diff(got["http"], got[skin]); diff != "" {
					t.Errorf("http (-) and %s (+):\n%s", skin, diff)
				}
			}
			if got["http"].Code != c.code || got["http"].Unexpected != "" {
				t.Errorf("refused with %q, want %q: %+v", got["http"].Code, c.code, got["http"])
			}
		})
	}
}

// change applies the definition that the agent of a submission gets later.
func (w *ways) change(t *testing.T, c skinSubmission) {
	t.Helper()
	var err error
	switch c.then {
	case "":
	case "deleted":
		err = w.admin.DeleteAgent(t.Context(), c.req.Agent)
	default:
		_, err = w.admin.PutAgent(t.Context(), c.req.Agent, []byte(c.then))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func submissionOf(r api.SubmitRequest, key string) turnpike.Submission {
	var input string
	if err := json.Unmarshal(r.Input, &input); err != nil {
		panic(err)
	}
	r = tagged(r, key)
	return turnpike.Submission{
		Agent: r.Agent, Version: r.AgentVersion, Input: input, Key: key, Priority: turnpike.Priority(r.Priority), Metadata: r.Metadata, Limits: r.Limits,
		Delay: time.Duration(r.Delay), OutputSchema: r.OutputSchema,
	}
}

// tagged returns r with a metadata value by which its run can be found.
func tagged(r api.SubmitRequest, key string) api.SubmitRequest {
	m := map[string]string{"tag": key[:min(len(key), 60)]}
	for k, v := range r.Metadata {
		m[k] = v
	}
	r.Metadata = m
	return r
}

// submit submits in one way. The result describes the submission's run: whether it exists once, the id of an
// existing run, and otherwise its input. The audit has each once.
func (w *ways) submit(t *testing.T, skin string, c skinSubmission, key, once string) result {
	t.Helper()
	var err error
	id, noted := "", len(w.notes(t, once))
	if skin == "nats" {
		req := tagged(c.req, key)
		body, encodeErr := json.Marshal(req)
		if encodeErr != nil {
			t.Fatal(encodeErr)
		}
		err = w.publish(t, c.caller, "submit."+req.Agent, key, body, func() bool {
			for i, err := range w.d.Runs(t.Context(), turnpike.Filter{Metadata: map[string]string{"tag": req.Metadata["tag"]}}) {
				if err != nil {
					t.Fatal(err)
				}
				id = i.ID
			}
			return id != "" && len(w.notes(t, id)) > noted
		})
	} else {
		var r *turnpike.Run
		if r, err = w.client(c.caller, skin == "go").Submit(t.Context(), submissionOf(c.req, key)); err == nil {
			id = r.ID()
		}
	}
	if err != nil {
		return resultOf(nil, err)
	}
	notes := w.notes(t, id)[noted:]
	if once != "" {
		return resultOf([]any{id == once, notes}, nil)
	}
	i, err := w.d.RunByID(id).Info(t.Context())
	delete(i.Metadata, "tag")
	waiting := ""
	if i.Waiting != nil {
		waiting = i.Waiting.Reason
	}
	return resultOf([]any{i.Agent, i.AgentVersion, i.Status, i.Priority, i.Metadata, waiting, i.Loop, notes}, err)
}

// notes returns the audit entries of the tenant default about a run, oldest first.
func (w *ways) notes(t *testing.T, run string) (all []string) {
	t.Helper()
	for cursor := ""; run != ""; {
		page, err := w.admin.Audit(t.Context(), cursor, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Items {
			if e.Target == run {
				all = append([]string{e.Action + e.Outcome}, all...)
			}
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	return all
}

// suspend creates a run in the tenant acme, which waits for an hour, and suspends the tenant.
func (w *ways) suspend(t *testing.T) (run func() string) {
	t.Helper()
	const agent = `{"model":{"provider":"scripted","responses":[{"text":"Hello."}]}}`
	if _, err := w.acme.PutAgent(t.Context(), "plain", []byte(agent)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.acme.PutTenant(t.Context(), "acme", api.TenantSettings{Suspended: true}); err != nil {
		t.Fatal(err)
	}
	return func() string {
		made, err := w.acme.Submit(t.Context(), api.SubmitRequest{Agent: "plain", Input: api.Text("x"), Delay: model.Duration(time.Hour)}, "")
		if err != nil {
			t.Fatal(err)
		}
		return made.ID
	}
}

// A cancellation ends the run, or is refused, in the same way over HTTP, over NATS and in the process.
func TestCancellationThroughEachSkin(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	put(t, w.d.Client, agentOf("plain", says("Hello.")...))
	foreign := w.suspend(t)
	own := func() string {
		return submit(t, w.client("submitter", false), turnpike.Submission{Agent: "plain", Input: "x", Delay: time.Hour}).ID()
	}
	is := func(id string) func() string { return func() string { return id } }
	const nobody = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	cases := map[string]struct {
		caller string
		run    func() string
		reason string
		code   string
	}{
		"own run":               {"submitter", own, "changed my mind", ""},
		"any run":               {"operator", own, "", ""},
		"run of somebody else":  {"another", own, "", api.CodeForbidden},
		"no role":               {"viewer", own, "", api.CodeForbidden},
		"wrong role":            {"approver", own, "", api.CodeForbidden},
		"no run":                {"operator", is(nobody), "", api.CodeRunNotFound},
		"no id":                 {"operator", is("nonsense"), "", api.CodeInvalidID},
		"run of another tenant": {"operator", foreign, "", api.CodeRunNotFound},
		"long reason":           {"submitter", own, strings.Repeat("r", 5000), api.CodeInvalidRequest},
		"suspended tenant":      {"suspended", foreign, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[string]result{}
			for _, skin := range []string{"http", "go", "nats"} {
				id := c.run()
				reader := w.d.As(turnpike.Principal{Name: "vera", Tenant: w.keys[c.caller].Tenant, Roles: []turnpike.Role{"viewer"}})
				var err error
				if skin == "nats" {
					body, encodeErr := json.Marshal(api.CancelRequest{Reason: c.reason})
					if encodeErr != nil {
						t.Fatal(encodeErr)
					}
					err = w.publish(t, c.caller, "abort."+id, "", body, func() bool {
						i, err := reader.RunByID(id).Info(t.Context())
						return err == nil && i.Terminal() && (w.keys[c.caller].Tenant != "default" || len(w.notes(t, id)) > 1)
					})
				} else {
					err = w.client(c.caller, skin == "go").RunByID(id).Cancel(t.Context(), c.reason)
				}
				if err != nil {
					got[skin] = resultOf(nil, err)
					continue
				}
				i, err := reader.RunByID(id).Wait(t.Context())
				end := []string{i.Status}
				if i.Reason != nil {
					end = append(end, *i.Reason)
				}
				got[skin] = resultOf(append(end, w.notes(t, id)...), err)
			}
			for _, skin := range []string{"go", "nats"} {
				if diff := cmp.Diff(got["http"], got[skin]); diff != "" {
					t.Errorf("http (-) and %s (+):\n%s", skin, diff)
				}
			}
			if got["http"].Code != c.code || got["http"].Unexpected != "" {
				t.Errorf("refused with %q, want %q: %+v", got["http"].Code, c.code, got["http"])
			}
		})
	}
}

// busy returns a run whose model call lasts until the test ends.
func (w *ways) busy(t *testing.T) string {
	t.Helper()
	put(t, w.d.Client, agentOf("slow", model.Scripted{Text: "late", Delay: model.Duration(time.Hour)}))
	r := submit(t, w.client("submitter", true), turnpike.Submission{Agent: "slow", Input: "x"})
	testbed.Eventually(t, "the run is busy", func() error {
		if i, err := r.Info(t.Context()); err != nil || i.Status != "running" {
			return fmt.Errorf("it is %s, %w", i.Status, err)
		}
		return nil
	})
	t.Cleanup(func() {
		if err := r.Cancel(context.Background(), "the test ends"); err != nil {
			t.Error(err)
		}
	})
	return r.ID()
}

// Operations that only HTTP and programs offer are refused in the same way. TestBothClients covers the
// successful ones.
func TestRefusalsThroughBothSkins(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	put(t, w.d.Client, agents()...)
	foreign := w.suspend(t)()
	const nobody = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	r, seen, err := idle(t.Context(), w.client("submitter", false))
	if err != nil {
		t.Fatal(err)
	}
	busy := w.busy(t)
	send := func(s turnpike.Signal, run string) func(context.Context, *turnpike.Client) error {
		return func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(run).Signal(ctx, s) }
	}
	stale := seen
	stale.Hash = strings.Repeat("0", len(seen.Hash))
	turn := 0
	cases := map[string]struct {
		caller string
		code   string
		do     func(context.Context, *turnpike.Client) error
	}{
		"stale approval":                  {"approver", api.CodeStaleApproval, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(r.ID()).Approve(ctx, stale) }},
		"approval without the role":       {"submitter", api.CodeForbidden, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(r.ID()).Approve(ctx, seen) }},
		"message without the role":        {"approver", api.CodeForbidden, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(r.ID()).Message(ctx, "x") }},
		"interrupt without the role":      {"approver", api.CodeForbidden, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(r.ID()).Interrupt(ctx, "x") }},
		"interrupt of another tenant":     {"submitter", api.CodeRunNotFound, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(foreign).Interrupt(ctx, "x") }},
		"interrupt of a suspended tenant": {"suspended", api.CodeTenantSuspended, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(foreign).Interrupt(ctx, "x") }},
		"message that a busy run rejects": {"submitter", api.CodeRunBusy, send(turnpike.Signal{Message: api.Text("x"), Mode: api.ModeReject}, busy)},
		"rollback without the role":       {"approver", api.CodeForbidden, send(turnpike.Signal{Message: api.Text("x"), Mode: api.ModeRollback}, r.ID())},
		"rollback of another tenant":      {"submitter", api.CodeRunNotFound, send(turnpike.Signal{Message: api.Text("x"), Mode: api.ModeRollback}, foreign)},
		"message in no mode":              {"submitter", api.CodeInvalidRequest, send(turnpike.Signal{Message: api.Text("x"), Mode: "now"}, busy)},
		"mode without a message":          {"approver", api.CodeInvalidRequest, send(turnpike.Signal{Answer: new("x"), Mode: api.ModeInterrupt}, r.ID())},
		"edit that is no object": {"approver", api.CodeInvalidRequest, func(ctx context.Context, c *turnpike.Client) error {
			return c.RunByID(r.ID()).Signal(ctx, turnpike.Signal{Approvals: []api.Approval{{CallID: seen.CallID, Hash: seen.Hash, Decision: "approve", Arguments: json.RawMessage(`[]`)}}})
		}},
		"answer that nobody waits for":      {"approver", api.CodeNotWaiting, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(r.ID()).Answer(ctx, "x") }},
		"signal to no run":                  {"approver", api.CodeRunNotFound, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(nobody).Answer(ctx, "x") }},
		"signal to a run of another tenant": {"approver", api.CodeRunNotFound, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(foreign).Answer(ctx, "x") }},
		"signal of a suspended tenant":      {"suspended", api.CodeTenantSuspended, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(foreign).Answer(ctx, "x") }},
		"fork of a suspended tenant": {"suspended", api.CodeTenantSuspended, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.RunByID(foreign).Fork(ctx, turnpike.Fork{Turn: &turn, Input: api.Text("x")})
			return err
		}},
		"fork without the role": {"viewer", api.CodeForbidden, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.RunByID(r.ID()).Fork(ctx, turnpike.Fork{Turn: &turn, Input: api.Text("x")})
			return err
		}},
		"fork of no run": {"submitter", api.CodeRunNotFound, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.RunByID(nobody).Fork(ctx, turnpike.Fork{Turn: &turn, Input: api.Text("x")})
			return err
		}},
		"fork without a turn": {"submitter", api.CodeInvalidRequest, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.RunByID(r.ID()).Fork(ctx, turnpike.Fork{Input: api.Text("x")})
			return err
		}},
		"batch without the role": {"viewer", api.CodeForbidden, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.SubmitBatch(ctx, turnpike.Batch{Runs: []turnpike.Submission{{Agent: "plain", Input: "x"}}})
			return err
		}},
		"batch of a suspended tenant": {"suspended", api.CodeTenantSuspended, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.SubmitBatch(ctx, turnpike.Batch{Runs: []turnpike.Submission{{Agent: "plain", Input: "x"}}})
			return err
		}},
		"empty batch": {"submitter", api.CodeInvalidRequest, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.SubmitBatch(ctx, turnpike.Batch{})
			return err
		}},
		"agent without the role": {"submitter", api.CodeForbidden, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.PutAgent(ctx, agentOf("other", says("x")...))
			return err
		}},
		"agent of a suspended tenant": {"suspended", api.CodeTenantSuspended, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.PutAgent(ctx, agentOf("other", says("x")...))
			return err
		}},
		"deletion without the role":   {"submitter", api.CodeForbidden, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(r.ID()).Delete(ctx) }},
		"deletion of a run in flight": {"operator", api.CodeRunInFlight, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(r.ID()).Delete(ctx) }},
		"deletion of no run":          {"operator", api.CodeRunNotFound, func(ctx context.Context, c *turnpike.Client) error { return c.RunByID(nobody).Delete(ctx) }},
		"run of another tenant": {"viewer", api.CodeRunNotFound, func(ctx context.Context, c *turnpike.Client) error {
			_, err := c.RunByID(foreign).Info(ctx)
			return err
		}},
		"runs of no status": {"viewer", api.CodeInvalidRequest, func(ctx context.Context, c *turnpike.Client) error {
			for _, err := range c.Runs(ctx, turnpike.Filter{Statuses: []string{"lost"}}) {
				return err
			}
			return nil
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outside := resultOf(nil, c.do(t.Context(), w.client(c.caller, false)))
			if diff := cmp.Diff(resultOf(nil, c.do(t.Context(), w.client(c.caller, true))), outside); diff != "" {
				t.Errorf("in the process (-) and over HTTP (+):\n%s", diff)
			}
			if outside.Code != c.code || outside.Unexpected != "" {
				t.Errorf("refused with %q, want %q: %+v", outside.Code, c.code, outside)
			}
		})
	}
}
