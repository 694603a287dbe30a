package mcptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// What a person may do with a question.
const (
	actionAccept  = "accept"
	actionDecline = "decline"
	actionCancel  = "cancel"
)

// maxPending bounds what a question puts into the checkpoint, in bytes.
const maxPending = 64 << 10

// exchange is a question with its answer; none yet if it is nil.
type exchange struct {
	Key    string            `json:"key,omitempty"` // that the server gave it
	Asked  *mcp.ElicitParams `json:"asked"`
	Answer *mcp.ElicitResult `json:"answer,omitempty"`
}

// pending is a call that waits for answers. It lies in the checkpoint, so any worker
// can go on with it.
type pending struct {
	// RequestState is the server's own, given back to it with the answers.
	RequestState string `json:"request_state,omitempty"`

	// Inline says that the server asks in the middle of a call: it gets its answers
	// when it asks again.
	Inline bool `json:"inline,omitempty"`

	// Barred says that the server has not begun the call, and does so only once a person
	// has been where it sends them.
	Barred bool `json:"barred,omitempty"`

	Exchanges []exchange `json:"exchanges"`
}

// pendingFrom reads what a result asks for.
func pendingFrom(r *mcp.CallToolResult) (*pending, error) {
	p := &pending{RequestState: r.RequestState}
	for _, key := range slices.Sorted(maps.Keys(r.InputRequests)) {
		asked, ok := r.InputRequests[key].(*mcp.ElicitParams)
		if !ok {
			return nil, fmt.Errorf("the server asks for %T, which is not supported: only people are asked", r.InputRequests[key])
		}
		p.Exchanges = append(p.Exchanges, exchange{Key: key, Asked: asked})
	}
	return p, nil
}

// barred reads from a refusal what a person has to do before the call can be made; nil
// if it is another one.
func barred(refusal *jsonrpc.Error) *pending {
	var data struct {
		Elicitations []*mcp.ElicitParams `json:"elicitations"`
	}
	if refusal.Code != mcp.CodeURLElicitationRequired || json.Unmarshal(refusal.Data, &data) != nil {
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

// ask puts the open question to a person. complaint, if not empty, says what was wrong
// with the last answer.
func (p *pending) ask(complaint string) (tool.Result, error) {
	state, err := json.Marshal(p)
	if err != nil {
		return tool.Result{}, fmt.Errorf("encode question: %w", err)
	}
	if len(state) > maxPending {
		return tool.Error(fmt.Sprintf("The server asks with %d bytes, at most %d are kept", len(state), maxPending)), nil
	}
	text := question(p.open().Asked)
	if complaint != "" {
		text = complaint + "\n" + text
	}
	return tool.Result{Ask: &tool.Ask{Question: text, State: state}}, nil
}

// pendingOf returns the call that c goes on with, all of its questions answered; nil if
// it is a new one. Otherwise it returns what to say instead of making the call.
func pendingOf(c tool.Call) (*pending, *tool.Result) {
	if c.Resume == nil {
		return nil, nil
	}
	var p pending
	if err := json.Unmarshal(c.Resume.State, &p); err != nil || p.open() == nil {
		r := tool.Error("the checkpoint of the call cannot be read")
		return nil, &r
	}
	var complaint string
	e := p.open()
	answer, err := answerOf(e.Asked, c.Resume.Answer)
	if err != nil {
		complaint = fmt.Sprintf("That was no answer: %v.", err)
	} else {
		e.Answer = answer
	}
	if p.Barred && e.Answer != nil && e.Answer.Action != actionAccept {
		r := tool.Error(fmt.Sprintf("A person was asked %q and answered: %s. The call was not made", e.Asked.Message, e.Answer.Action))
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

// field is one property of a form.
type field struct {
	name     string
	schema   *jsonschema.Schema
	required bool
}

// fields returns the properties of a form, in the order of their names.
func fields(asked *mcp.ElicitParams) (*jsonschema.Schema, []field) {
	b, err := json.Marshal(asked.RequestedSchema)
	var s *jsonschema.Schema
	if err != nil || json.Unmarshal(b, &s) != nil || s == nil {
		return nil, nil
	}
	var list []field
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if s.Properties[name] != nil {
			list = append(list, field{name, s.Properties[name], slices.Contains(s.Required, name)})
		}
	}
	return s, list
}

// question says in words what a server wants to know, and how to answer.
func question(asked *mcp.ElicitParams) string {
	var b strings.Builder
	b.WriteString(asked.Message)
	if asked.URL != "" {
		fmt.Fprintf(&b, "\nOpen %s and answer %s when you have done what it asks for", asked.URL, actionAccept)
	}
	_, list := fields(asked)
	switch len(list) {
	case 0:
		if asked.URL == "" {
			fmt.Fprintf(&b, "\nAnswer %s", actionAccept)
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

func (f field) String() string {
	about := []string{f.schema.Type}
	for _, v := range f.schema.Enum {
		about = append(about, fmt.Sprint(v))
	}
	for _, o := range f.schema.OneOf {
		if o.Const != nil {
			about = append(about, fmt.Sprint(*o.Const))
		}
	}
	if !f.required {
		about = append(about, "optional")
	}
	text := fmt.Sprintf("%s (%s)", f.name, strings.Join(about, ", "))
	if f.schema.Description != "" {
		text += ": " + f.schema.Description
	}
	return text
}

// answerOf reads what a person answered: accept, decline or cancel; a JSON object with
// the fields of the form; the value alone if the form has one field; or the whole
// answer as the protocol has it, {"action": ..., "content": {...}}.
func answerOf(asked *mcp.ElicitParams, text string) (*mcp.ElicitResult, error) {
	schema, list := fields(asked)
	word := strings.ToLower(strings.TrimSpace(text))
	if word == actionDecline || word == actionCancel {
		return &mcp.ElicitResult{Action: word}, nil
	}
	var content map[string]any
	switch err := json.Unmarshal([]byte(text), &content); {
	case err == nil && content != nil:
		if whole := wholeAnswer(content, schema); whole != nil {
			if whole.Action != actionAccept {
				return whole, nil
			}
			content = whole.Content
		}
	case asked.URL != "" || len(list) == 0:
		return &mcp.ElicitResult{Action: actionAccept}, nil
	case len(list) == 1:
		v, err := value(list[0], text)
		if err != nil {
			return nil, err
		}
		content = map[string]any{list[0].name: v}
	case word == actionAccept:
		content = map[string]any{} // the defaults may do
	default:
		return nil, errors.New("a JSON object is wanted")
	}
	if content == nil {
		content = map[string]any{}
	}
	if schema == nil {
		return &mcp.ElicitResult{Action: actionAccept, Content: content}, nil
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the server's form is broken (%w): answer %s", err, actionDecline)
	}
	if err := resolved.ApplyDefaults(&content); err != nil {
		return nil, err
	}
	if err := resolved.Validate(content); err != nil {
		return nil, err
	}
	return &mcp.ElicitResult{Action: actionAccept, Content: content}, nil
}

// wholeAnswer returns content as an answer of the protocol if it is one and cannot be
// meant as the content of the form.
func wholeAnswer(content map[string]any, form *jsonschema.Schema) *mcp.ElicitResult {
	action, ok := content["action"].(string)
	if !ok || form != nil && form.Properties["action"] != nil || !slices.Contains([]string{actionAccept, actionDecline, actionCancel}, action) {
		return nil
	}
	inner, _ := content["content"].(map[string]any)
	return &mcp.ElicitResult{Action: action, Content: inner}
}

// value reads the answer to a form of one field.
func value(f field, text string) (any, error) {
	text = strings.TrimSpace(text)
	switch f.schema.Type {
	case "boolean":
		switch strings.ToLower(text) {
		case "yes", "y", "true", actionAccept:
			return true, nil
		case "no", "n", "false":
			return false, nil
		}
		return nil, errors.New("yes or no is wanted")
	case "number", "integer":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, errors.New("a number is wanted")
		}
		return n, nil
	case "array":
		var list []any
		if json.Unmarshal([]byte(text), &list) == nil {
			return list, nil
		}
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(part))
		}
		return list, nil
	default:
		return text, nil
	}
}
