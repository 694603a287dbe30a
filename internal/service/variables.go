package service

import (
	"bytes"
	"encoding/json"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// instructor returns the instructions of an agent for the values of its variables.
type instructor func(a *agent.Agent, variables json.RawMessage) (string, error)

// instruct is the instructor of a single run.
func instruct(a *agent.Agent, variables json.RawMessage) (string, error) {
	text, err := a.Instruct(variables)
	return text, placedFaults(err)
}

// placedFaults returns the problem for an error of agent.Agent.Instruct, and nil for nil.
func placedFaults(err error) error {
	if err == nil {
		return nil
	}
	p := problem(badRequest, api.CodeInvalidRequest, "%v", err)
	for _, f := range agent.Faults(err) {
		p.Errors = append(p.Errors, api.Fault{At: f.At, Detail: f.Text})
	}
	return p
}

// given returns the values of variables in the form in runs: nil without values.
func given(variables json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, variables) != nil || b.String() == "null" || b.String() == "{}" {
		return nil
	}
	return b.Bytes()
}

// maxBatchInstructions is the maximum size of all instructions in one batch, in bytes, after the variables have been
// replaced. Runs of one agent with the same values count once; runs of an agent without variables do not count.
const maxBatchInstructions = 8 << 20

// batchInstructions makes the instructions of the runs of one batch. It limits their memory and the time to make them.
// The zero value is ready to use. It is not safe for concurrent use.
type batchInstructions struct {
	of    map[*agent.Agent]*instructed
	bytes int
}

// instructed has the instructions of the runs of one agent so far, by the values of the variables.
type instructed struct {
	instruct func(json.RawMessage) (string, error)
	texts    map[string]string
}

func (b *batchInstructions) instruct(a *agent.Agent, variables json.RawMessage) (string, error) {
	if len(a.Variables) == 0 {
		return instruct(a, variables)
	}
	if b.of == nil {
		b.of = map[*agent.Agent]*instructed{}
	}
	known := b.of[a]
	if known == nil {
		known = &instructed{a.Instructor(), map[string]string{}}
		b.of[a] = known
	}
	if text, ok := known.texts[string(variables)]; ok {
		return text, nil
	}
	text, err := known.instruct(variables)
	if err != nil {
		return "", placedFaults(err)
	}
	if b.bytes += len(text); b.bytes > maxBatchInstructions {
		return "", invalid("variables: with their values, the instructions of the batch's runs have more than %d bytes: split the batch", maxBatchInstructions)
	}
	known.texts[string(variables)] = text
	return text, nil
}
