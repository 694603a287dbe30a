package service

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// maxForkResult is the maximum size of a replaced tool result, in bytes: the default maximum that workers keep of a
// result.
const maxForkResult = 128 << 10

// maxNamed is the maximum number of items that an error message lists.
const maxNamed = 20

// fork is the history of a run with the requested changes applied, and the faults of those
// changes.
type fork struct {
	state.History

	source  state.RunID
	asked   []string // the principals who have requested something in it
	changed []string // descriptions of the changes, for the log
	edited  []int    // indexes of changed messages
	faults  []api.Fault
}

func (f *fork) fault(at, format string, args ...any) {
	f.faults = append(f.faults, api.Fault{At: at, Detail: problem(Kind{}, "", format, args...).Detail})
}

// err returns an error with all faults, or nil.
func (f *fork) err() error {
	if len(f.faults) == 0 {
		return nil
	}
	var all []string
	for _, one := range f.faults {
		all = append(all, one.Detail)
	}
	p := problem(badRequest, api.CodeInvalidRequest, "")
	p.Detail, p.Errors = Clip(strings.Join(all, "; "), MaxDetail), f.faults[:min(len(f.faults), maxNamed)]
	return p
}

// change applies the requested changes, and collects their faults. instructions are those of the run's agent.
func (f *fork) change(req api.ForkRequest, instructions string) {
	if most := maxMessages; len(req.Messages) > most || len(req.ToolResults) > most {
		f.fault("", "messages has %d entries and tool_results %d, at most %d are allowed in each: replace fewer", len(req.Messages), len(req.ToolResults), most)
		return
	}
	for i, m := range req.Messages {
		f.replaceMessage(fmt.Sprintf("messages[%d]", i), m, instructions)
	}
	for i, res := range req.ToolResults {
		f.replaceResult(fmt.Sprintf("tool_results[%d]", i), res)
	}
	if req.Input = bytes.TrimSpace(req.Input); len(req.Input) > 0 && string(req.Input) != "null" {
		more, err := submitted(req.Input)
		if err != nil {
			f.fault("input", "%s", ProblemOf(err).Detail)
			return
		}
		f.Messages = append(f.Messages, more...)
	}
	if len(f.Messages) > maxMessages {
		f.fault("input", "with the input the history has %d messages, at most %d are allowed: fork from an earlier turn, or send fewer messages", len(f.Messages), maxMessages)
	}
	if len(f.faults) > 0 {
		return
	}
	if err := paired(f.Messages); err != nil {
		at := "input"
		if len(req.Messages) > 0 {
			at = "messages"
		}
		f.fault(at, "%s: %v", at, err)
	}
	if len(f.Messages) > 0 && f.Messages[len(f.Messages)-1].Role == state.RoleAssistant {
		f.fault("input", "turn %d ends with an answer of the model, and nothing follows it: give an input to continue from there", f.Turn)
	}
	if len(f.changed) > maxNamed {
		f.changed = append(f.changed[:maxNamed], fmt.Sprintf("and %d more", len(f.changed)-maxNamed))
	}
}

// edit replaces the parts of the message at index i, without changing the log entry that has the message. at is the
// field of the request, and what describes the change.
func (f *fork) edit(at string, i int, parts []state.Part, what string) {
	if slices.Contains(f.edited, i) {
		f.fault(at, "%s: message %s is changed twice: remove one change", at, f.Messages[i].ID)
		return
	}
	f.edited = append(f.edited, i)
	f.Messages[i].Parts = parts
	f.changed = append(f.changed, what)
}

func (f *fork) replaceMessage(at string, m api.ForkMessage, instructions string) {
	i := slices.IndexFunc(f.Messages, func(have state.Message) bool { return have.ID == m.ID })
	switch {
	case m.ID == "":
		f.fault(at+".id", "%s.id is missing: give the id of a message from GET /v1/runs/%s/messages", at, f.source)
		return
	case i < 0:
		f.fault(at+".id", "%s.id: %s is not a message of turns 0 to %d that the model sees: give one from GET /v1/runs/%s/messages", at, m.ID, f.Turn, f.source)
		return
	case i == 0 && f.instructed(instructions):
		f.fault(at+".id", "%s.id: %s holds the instructions of the agent: set the field instructions instead", at, m.ID)
		return
	case len(m.Parts) == 0:
		f.fault(at+".parts", "%s.parts is missing: give the new content of the message", at)
		return
	}
	role := f.Messages[i].Role
	var parts []state.Part
	for k, raw := range m.Parts {
		var in partIn
		err := api.Decode(raw, &in)
		var part state.Part
		if err == nil {
			part, err = in.of(role)
		}
		if err != nil {
			f.fault(fmt.Sprintf("%s.parts[%d]", at, k), "%s.parts[%d]: %v", at, k, err)
			return
		}
		if role == state.RoleTool {
			part.Origin = state.OriginPerson
		}
		parts = append(parts, part)
	}
	f.edit(at, i, parts, "message "+m.ID)
	f.Messages[i].Model, f.Messages[i].Synthetic = "", false // neither has written it
}

func (f *fork) replaceResult(at string, res api.ForkResult) {
	if res.CallID == "" {
		f.fault(at+".call_id", "%s.call_id is missing: give the id of the call", at)
		return
	}
	if len(res.Content) == 0 || string(res.Content) == "null" {
		f.fault(at+".content", "%s.content is missing: give the result that the model reads", at)
		return
	}
	content := api.PlainText(res.Content)
	if len(content) > maxForkResult {
		f.fault(at+".content", "%s.content has %d bytes, at most %d are allowed: shorten it", at, len(content), maxForkResult)
		return
	}
	if _, omitted := tool.CheckImages(res.Images); omitted != "" {
		f.fault(at+".images", "%s.images: %s", at, mistakes(omitted))
		return
	}
	files, err := resultFiles(res.Files)
	if err != nil {
		f.fault(at+".files", "%s.files: %v", at, err)
		return
	}
	found, known := f.resultsOf(res)
	switch {
	case len(found) == 0 && len(known) == 0:
		f.fault(at+".call_id", "%s.call_id: no call of turns 0 to %d has a result: remove tool_results, or fork from a later turn", at, f.Turn)
	case len(found) == 0:
		f.fault(at+".call_id", "%s.call_id: there is no result of a call %s in turns 0 to %d: name one of %s", at, Clip(res.CallID, MaxEcho), f.Turn, known)
	case len(found) > 1:
		f.fault(at+".call_id", "%s.call_id: %d calls have the id %s: add turn to select one", at, len(found), res.CallID)
	default:
		i := found[0]
		parts := slices.Clone(f.Messages[i].Parts)
		for k := range parts {
			if p := &parts[k]; p.Type == state.PartToolResult && p.CallID == res.CallID {
				*p = state.Part{Type: state.PartToolResult, CallID: res.CallID, Content: content, IsError: res.IsError, Images: res.Images, Files: files, Origin: state.OriginPerson}
			}
		}
		f.edit(at, i, parts, fmt.Sprintf("the result of %s in turn %d", res.CallID, f.Messages[i].Turn))
		f.Messages[i].Synthetic = false
	}
}

// resultsOf returns the indexes of the messages with the result that res names, and the calls that have a result, for
// an error message.
func (f *fork) resultsOf(res api.ForkResult) (found []int, known string) {
	var names []string
	for i, m := range f.Messages {
		for _, p := range m.Parts {
			if p.Type != state.PartToolResult {
				continue
			}
			names = append(names, fmt.Sprintf("%.60s (turn %d)", p.CallID, m.Turn))
			if p.CallID == res.CallID && (res.Turn == nil || *res.Turn == m.Turn) {
				found = append(found, i)
			}
		}
	}
	if n := len(names); n > 4 {
		names = append(names[n-4:], fmt.Sprintf("and %d before", n-4))
	}
	return found, strings.Join(names, ", ")
}

// instructed reports whether the history begins with the instructions of the agent.
func (f *fork) instructed(instructions string) bool {
	return instructions != "" && len(f.Messages) > 0 && f.Messages[0].Role == state.RoleSystem && f.Messages[0].Text() == instructions
}

// instruct replaces the instructions at the beginning of the history.
func (f *fork) instruct(before, after string) {
	if before == after {
		return
	}
	if f.instructed(before) {
		f.Messages = f.Messages[1:]
	}
	if after != "" {
		said := state.Message{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: after}}}
		if len(f.Messages) > 0 {
			said.At = f.Messages[0].At
		}
		f.Messages = append([]state.Message{said}, f.Messages...)
	}
}
