package mcptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// The possible actions in a person's answer to a question.
const (
	actionAccept  = "accept"
	actionDecline = "decline"
	actionCancel  = "cancel"
)

// maxPending is the maximum size of the questions of a call in the checkpoint, in bytes.
const maxPending = 64 << 10

// exchange is a question with its answer; a nil answer is still pending.
type exchange struct {
	Key    string            `json:"key,omitempty"` // the server's key of the question
	Asked  *mcp.ElicitParams `json:"asked"`
	Answer *mcp.ElicitResult `json:"answer,omitempty"`
}

// pending is a call that waits for answers. The checkpoint has it, so any worker can resume the call.
type pending struct {
	// RequestState is opaque state that the worker must send back to the server with the answers.
	RequestState string `json:"request_state,omitempty"`

	// Inline reports that the server asks during a call: the worker repeats the call and answers when the server asks
	// again.
	Inline bool `json:"inline,omitempty"`

	// Barred reports that the server has refused the call until a person has visited the URL in the question.
	Barred bool `json:"barred,omitempty"`

	Exchanges []exchange `json:"exchanges"`
}

// pendingFrom returns the questions in a result. It is an error if the state to send back contains a secret, because
// that must not be stored.
func pendingFrom(r *mcp.CallToolResult, secrets *secret.Redactor) (*pending, error) {
	p := &pending{RequestState: r.RequestState}
	for _, key := range append(slices.Sorted(maps.Keys(r.InputRequests)), r.RequestState) {
		if secrets.Redact(key) != key {
			return nil, errors.New("The server asks a question, and the state of its request contains a secret, which must not be stored, so no person was asked. Continue without the result; the server must keep secrets out of that state") //nolint:staticcheck // sentences for the model
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.InputRequests)) {
		asked, ok := r.InputRequests[key].(*mcp.ElicitParams)
		if !ok {
			return nil, errors.New("The MCP server requests something else than an answer of a person (elicitation), such as sampling or roots, which is not supported. Continue without the result; the server must not send such requests") //nolint:staticcheck // sentences for the model
		}
		asked, err := withoutSecrets(asked, secrets)
		if err != nil {
			return nil, err
		}
		p.Exchanges = append(p.Exchanges, exchange{Key: key, Asked: asked})
	}
	return p, nil
}

// barred returns the question in a refusal that asks a person to visit a URL before the call, or nil if the refusal has
// another reason.
func barred(refusal *jsonrpc.Error, secrets *secret.Redactor) *pending {
	var data struct {
		Elicitations []*mcp.ElicitParams `json:"elicitations"`
	}
	if refusal.Code != mcp.CodeURLElicitationRequired || json.Unmarshal([]byte(secrets.Redact(string(tool.Canonical(refusal.Data)))), &data) != nil {
		return nil
	}
	p := &pending{Barred: true}
	for _, asked := range data.Elicitations {
		if asked != nil {
			p.Exchanges = append(p.Exchanges, exchange{Asked: asked})
		}
	}
	if p.open() == nil {
		return nil
	}
	return p
}

// withoutSecrets returns a question without the secrets of the server, in case the server repeats them: people see the
// question, and the checkpoint has it.
func withoutSecrets(asked *mcp.ElicitParams, secrets *secret.Redactor) (*mcp.ElicitParams, error) {
	b, err := json.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("read question: %w", err)
	}
	var out mcp.ElicitParams
	if err := json.Unmarshal([]byte(secrets.Redact(string(b))), &out); err != nil {
		return nil, fmt.Errorf("The question of the server cannot be read without the secrets in it (%w), so no person was asked. Continue without the result; the server must keep secrets out of its questions", err) //nolint:staticcheck // sentences for the model
	}
	return &out, nil
}

func (p *pending) open() *exchange {
	for i := range p.Exchanges {
		if p.Exchanges[i].Answer == nil {
			return &p.Exchanges[i]
		}
	}
	return nil
}

func (p *pending) responses() mcp.InputResponseMap {
	m := mcp.InputResponseMap{}
	for _, e := range p.Exchanges {
		m[e.Key] = e.Answer
	}
	return m
}

// ask returns the result that asks a person the open question. complaint, if not empty, says what is wrong with the
// last answer.
func (p *pending) ask(complaint string) (tool.Result, error) {
	// People may open the URL, so it must be that of a web page.
	if at := p.open().Asked.URL; at != "" {
		if u, err := url.Parse(at); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return tool.Error(fmt.Sprintf("The server asks to open %q, which is not a web page, so no person was asked. Continue without the call", tool.Truncate(at, 200))), nil
		}
	}
	state, err := json.Marshal(p)
	if err != nil {
		return tool.Result{}, fmt.Errorf("encode question: %w", err)
	}
	if len(state) > maxPending {
		return tool.Error(fmt.Sprintf("The server's questions, its state and the answers so far have %d bytes, and at most %d are allowed, so no further question was asked. The call has no result: continue without a result", len(state), maxPending)), nil
	}
	text := question(p.open().Asked)
	if complaint != "" {
		text = complaint + "\n" + text
	}
	return tool.Result{Ask: &tool.Ask{Question: text, State: state}}, nil
}

// pendingOf returns the pending call that c resumes, with all of its questions answered, or nil if c is a new call. If
// an answer is missing or invalid, the second result is not nil: the result to return instead of making the call.
func pendingOf(c tool.Call) (*pending, *tool.Result) {
	if c.Resume == nil {
		return nil, nil
	}
	var p pending
	if err := json.Unmarshal(c.Resume.State, &p); err != nil || p.open() == nil {
		r := tool.Error("The stored state of the call cannot be decoded, so the call was not continued. Call the tool again")
		return nil, &r
	}
	var complaint string
	e := p.open()
	answer, err := answerOf(e.Asked, c.Resume.Answer)
	if err != nil {
		complaint = fmt.Sprintf("That answer is not valid: %v.", err)
	} else {
		e.Answer = answer
	}
	if p.Barred && e.Answer != nil && e.Answer.Action != actionAccept {
		r := tool.Error(fmt.Sprintf("A person was asked %q and answered: %s. The call was not made: continue without it", e.Asked.Message, e.Answer.Action))
		return nil, &r
	}
	if p.open() == nil {
		return &p, nil
	}
	r, err := p.ask(complaint)
	if err != nil {
		r = tool.Error(err.Error())
	}
	return nil, &r
}

// question describes in words the question of a server, and how to answer.
func question(asked *mcp.ElicitParams) string {
	var b strings.Builder
	b.WriteString(asked.Message)
	if asked.URL != "" {
		fmt.Fprintf(&b, "\nOpen %s, and when you have done what it asks for, answer with %s", asked.URL, actionAccept)
	}
	list := fields(asked)
	switch len(list) {
	case 0:
		if asked.URL == "" {
			fmt.Fprintf(&b, "\nAnswer with %s", actionAccept)
		}
	case 1:
		fmt.Fprintf(&b, "\nAnswer with %s", list[0])
	default:
		b.WriteString("\nAnswer with a JSON object of")
		for _, f := range list {
			fmt.Fprintf(&b, "\n- %s", f)
		}
	}
	fmt.Fprintf(&b, "\nor with %s or %s.", actionDecline, actionCancel)
	return b.String()
}
