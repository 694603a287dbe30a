package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ids makes run ids that sort by time, also within a millisecond.
type ids struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
}

func (i *ids) next(now time.Time) (state.RunID, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.entropy == nil {
		i.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	id, err := ulid.New(ulid.Timestamp(now), i.entropy)
	if err != nil {
		return "", fmt.Errorf("make run id: %w", err)
	}
	return state.RunID(state.RunPrefix + id.String()), nil
}

// submission is what came in, whatever the entrance.
type submission struct {
	req     api.SubmitRequest
	body    []byte // as it came, for the fingerprint
	key     string
	replyTo string
	trace   string
}

const (
	maxMessages = 2000
	maxKey      = 255
)

// submit stores a run and publishes its first turn. When it returns nil the run is
// durable: if the publish failed, the sweeper does it.
func (g *Gateway) submit(ctx context.Context, sub submission) (state.State, error) {
	run, err := g.newRun(ctx, sub)
	if err != nil {
		return state.State{}, err
	}
	sum := sha256.Sum256(canonical(sub.body))
	st, existing, err := g.store.Create(ctx, state.NewRun{
		State: run, Key: sub.key, Fingerprint: hex.EncodeToString(sum[:]), Grace: g.cfg.Grace,
	})
	if err != nil {
		return state.State{}, err
	}
	if st.Status == state.Queued && !existing {
		g.publish(ctx, bus.Turn{Run: st.ID, Version: st.Version, Priority: st.Priority, TraceParent: sub.trace}, turnID(st.ID, st.Version))
	}
	return st, nil
}

func turnID(id state.RunID, version int64) string { return fmt.Sprintf("%s:%d", id, version) }

// publish sends a turn message. The run is in the store: a message that cannot be
// sent now is the sweeper's.
func (g *Gateway) publish(ctx context.Context, t bus.Turn, id string) {
	// A client that goes away must not cost its run a sweep.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := g.bus.PublishTurn(ctx, t, id); err != nil {
		g.log.Warn().Err(err).Str("run_id", string(t.Run)).Msg("publish turn; the sweeper will")
	}
}

// canonical is a body without the accidents of its spelling.
func canonical(body []byte) []byte {
	var v any
	if json.Unmarshal(body, &v) == nil {
		if b, err := json.Marshal(v); err == nil {
			return b
		}
	}
	return body
}

// newRun checks a submission and returns the run that it asks for.
func (g *Gateway) newRun(ctx context.Context, sub submission) (state.State, error) {
	req := sub.req
	if req.Agent == "" {
		return state.State{}, invalid("agent is missing")
	}
	if len(sub.key) > maxKey {
		return state.State{}, invalid("the idempotency key has %d bytes, at most %d are allowed", len(sub.key), maxKey)
	}
	a, err := g.compiled(ctx, req.Agent, 0)
	if err != nil {
		return state.State{}, err
	}
	now := state.At(time.Now())
	limits, err := limitsOf(req.Limits, now)
	if err != nil {
		return state.State{}, err
	}
	messages, err := inputOf(req.Input, a.Instructions)
	if err != nil {
		return state.State{}, err
	}
	run := state.State{
		Agent: req.Agent, AgentVersion: a.Version, Loop: a.Loop.Type, Tenant: g.cfg.Tenant, Priority: state.Priority(req.Priority),
		Metadata: req.Metadata, Limits: a.Tighten(limits, now), OutputSchema: req.OutputSchema, Stream: req.Stream, ReplyTo: sub.replyTo,
		Webhook: req.Webhook, TraceSpan: sub.trace,
	}
	if err := check(&run, req, a); err != nil {
		return state.State{}, err
	}
	if run.ID, err = g.ids.next(now.Time); err != nil {
		return state.State{}, err
	}
	for i := range messages {
		messages[i].ID, messages[i].At = fmt.Sprintf("msg_1_%d", i), now
	}
	if run, err = run.Move(state.Submitted, state.Entry{At: now, Messages: messages}); err != nil {
		return state.State{}, err
	}
	if req.StartAt != nil && req.StartAt.After(now.Time) {
		run.ResumeAt = *req.StartAt
		return run.Move(state.WaitingSchedule, state.Entry{
			At: now, Detail: "start_at", Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: now, ExpiresAt: *req.StartAt, Calls: []state.WaitCall{}},
		})
	}
	return run, nil
}

func invalid(format string, args ...any) error {
	return problem(http.StatusBadRequest, api.CodeInvalidRequest, format, args...)
}

// check refuses what makes no sense in the rest of a submission.
func check(run *state.State, req api.SubmitRequest, a *agent.Agent) error {
	if run.Priority == "" {
		run.Priority = state.Normal
	}
	if !slices.Contains(state.Priorities(), run.Priority) {
		return invalid("priority %q is not one of high, normal, low", req.Priority)
	}
	if !slices.Contains([]string{"", "turns", "deltas"}, req.Stream) {
		return invalid("stream %q is not one of turns, deltas", req.Stream)
	}
	if len(req.OutputSchema) > 0 {
		if a.Loop.Type != "single_call" {
			return invalid("output_schema needs an agent with the loop single_call, %q uses %s", a.Name, a.Loop.Type)
		}
		if err := agent.CheckSchema(req.OutputSchema); err != nil {
			return invalid("output_schema: %v", err)
		}
	}
	if req.Webhook != nil {
		if u, err := url.Parse(req.Webhook.URL); err != nil || u.Host == "" {
			return invalid("webhook.url is not a URL")
		}
		return problem(http.StatusNotImplemented, api.CodeNotImplemented, "webhooks are not available in this build yet: read the events, or submit over NATS with a Turnpike-Reply header")
	}
	if len(req.Metadata) > 64 {
		return invalid("metadata has %d entries, at most 64 are allowed", len(req.Metadata))
	}
	return nil
}

func limitsOf(l *api.SubmitLimits, now state.Time) (state.Limits, error) {
	if l == nil {
		return state.Limits{}, nil
	}
	if l.MaxTurns < 0 || l.OutputTokens < 0 || l.TotalTokens < 0 || l.CostUSD < 0 || l.Wait < 0 {
		return state.Limits{}, invalid("a limit is negative")
	}
	if l.MaxTurns > agent.MaxMaxTurns {
		return state.Limits{}, invalid("limits.max_turns: %d is above the ceiling of %d", l.MaxTurns, agent.MaxMaxTurns)
	}
	out := state.Limits{
		MaxTurns: l.MaxTurns, OutputTokens: l.OutputTokens, TotalTokens: l.TotalTokens, CostUSD: l.CostUSD, WaitMS: time.Duration(l.Wait).Milliseconds(),
	}
	if d := l.Deadline; d != nil {
		out.DeadlineAt = d.At
		if d.At.IsZero() {
			if d.In <= 0 {
				return state.Limits{}, invalid("limits.deadline is not in the future")
			}
			out.DeadlineAt = state.At(now.Add(d.In))
		}
	}
	return out, nil
}

// inputOf returns the first messages of a run: the agent's instructions, then what
// was submitted.
func inputOf(raw json.RawMessage, instructions string) ([]state.Message, error) {
	var messages []state.Message
	if instructions != "" {
		messages = append(messages, state.Message{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: instructions}}})
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		if text == "" {
			return nil, invalid("input is empty")
		}
		return append(messages, state.UserText(text)), nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, invalid("input must be a text or a list of messages, and must not be empty")
	}
	if len(list) > maxMessages {
		return nil, invalid("input has %d messages, at most %d are allowed", len(list), maxMessages)
	}
	for i, item := range list {
		m, err := messageOf(item)
		if err != nil {
			return nil, invalid("input[%d]: %v", i, err)
		}
		messages = append(messages, m)
	}
	if err := paired(messages); err != nil {
		return nil, invalid("input: %v", err)
	}
	return messages, nil
}

// messageOf reads a message: {role, content: "text"} or {role, parts: [...]}.
func messageOf(raw json.RawMessage) (state.Message, error) {
	var in struct {
		Role    state.Role   `json:"role"`
		Content *string      `json:"content"`
		Parts   []state.Part `json:"parts"`
	}
	if err := api.Decode(raw, &in); err != nil {
		return state.Message{}, err
	}
	m := state.Message{Role: in.Role, Parts: in.Parts}
	if m.Role == "" {
		m.Role = state.RoleUser
	}
	if !slices.Contains([]state.Role{state.RoleSystem, state.RoleUser, state.RoleAssistant, state.RoleTool}, m.Role) {
		return state.Message{}, fmt.Errorf("role %q is not one of system, user, assistant, tool", m.Role)
	}
	if in.Content != nil {
		m.Parts = append([]state.Part{{Type: state.PartText, Text: *in.Content}}, m.Parts...)
	}
	if len(m.Parts) == 0 {
		return state.Message{}, fmt.Errorf("it has neither content nor parts")
	}
	for i, p := range m.Parts {
		ok := false
		switch p.Type {
		case state.PartText, state.PartImage:
			ok = m.Role != state.RoleTool
		case state.PartThinking, state.PartToolCall:
			ok = m.Role == state.RoleAssistant
		case state.PartToolResult:
			ok = m.Role == state.RoleTool
		}
		if !ok {
			return state.Message{}, fmt.Errorf("parts[%d]: a part of type %q does not belong into a message of role %s", i, p.Type, m.Role)
		}
	}
	return m, nil
}

// paired checks that every tool call of a given history has its result directly
// behind it (I5).
func paired(messages []state.Message) error {
	var open []string
	for i, m := range messages {
		if m.Role == state.RoleTool {
			for _, p := range m.Parts {
				k := slices.Index(open, p.CallID)
				if k < 0 {
					return fmt.Errorf("messages[%d] answers a call %q that is not open", i, p.CallID)
				}
				open = slices.Delete(open, k, k+1)
			}
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("the tool call %q has no result before messages[%d]", open[0], i)
		}
		for _, c := range m.Calls() {
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the tool call %q has no result", open[0])
	}
	return nil
}
