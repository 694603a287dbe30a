package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type forkCmd struct {
	ID    string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	At    *int   `arg:"" name:"turn" optional:"" help:"Last turn of the shared history; 0 shares the input only."`
	Input string `arg:"" optional:"" help:"User message after the shared history."`

	Turn         *int              `help:"The same as TURN."`
	Message      string            `help:"The same as INPUT."`
	AgentVersion int               `help:"Another version of the agent." placeholder:"N"`
	Instructions string            `help:"File with other instructions, for this run alone; - is standard input." placeholder:"FILE"`
	Var          map[string]string `mapsep:"none" help:"Value of a variable of the agent, as in --var name=text, or --var name:=JSON; together they replace those of the run." placeholder:"NAME=TEXT"`
	Edit         []string          `sep:"none" help:"Replacement text of a message in the history, as in --edit msg_1_1=TEXT; turnpike watch -o json has the ids." placeholder:"ID=TEXT"`
	Result       []string          `sep:"none" help:"Replacement result of a call, as in --result call_1=JSON, or call_1@2=JSON for the one of turn 2; a value that is not JSON is text." placeholder:"CALL=JSON"`
	Key          string            `help:"Idempotency key: the same key gives the same run."`
}

func (c *forkCmd) Run(e *env) error {
	req, err := c.request(e.in)
	if err != nil {
		return err
	}
	run, err := e.client.ForkWithKey(e.ctx, c.ID, req, c.Key)
	if err != nil {
		return err
	}
	return e.print(run, run.ID)
}

// request returns the request for the flags. Its error joins all mistakes in them.
func (c *forkCmd) request(in io.Reader) (api.ForkRequest, error) {
	var errs []error
	req := api.ForkRequest{Turn: c.At}
	switch {
	case c.At != nil && c.Turn != nil:
		errs = append(errs, errors.New("TURN and --turn are both given, and mean the same: remove one of them"))
	case c.Turn != nil:
		req.Turn = c.Turn
	case c.At == nil:
		errs = append(errs, errors.New("--turn is required: the fork shares history through that turn (0: the input only)"))
	}
	said := c.Input + c.Message
	if c.Input != "" && c.Message != "" {
		errs = append(errs, errors.New("INPUT and --message are both given, and mean the same: remove one of them"))
	}
	if said != "" {
		req.Input = api.Text(said)
	}
	if c.AgentVersion != 0 {
		req.AgentVersion = &c.AgentVersion
	}
	if c.Instructions != "" {
		text, err := textOf(c.Instructions, in)
		if err != nil {
			errs = append(errs, fmt.Errorf("--instructions: %w", err))
		}
		req.Instructions = &text
	}
	var err error
	if req.Variables, err = variables(c.Var); err != nil {
		errs = append(errs, err)
	}
	for _, given := range c.Edit {
		id, text, ok := strings.Cut(given, "=")
		if !ok || id == "" {
			errs = append(errs, fmt.Errorf("--edit %s does not have the form ID=TEXT: write one such as --edit msg_1_1=TEXT", given))
			continue
		}
		part, err := json.Marshal(map[string]string{"type": "text", "text": text})
		if err != nil {
			return req, err
		}
		req.Messages = append(req.Messages, api.ForkMessage{ID: id, Parts: []json.RawMessage{part}})
	}
	for _, given := range c.Result {
		id, content, ok := strings.Cut(given, "=")
		if !ok || id == "" {
			errs = append(errs, fmt.Errorf("--result %s does not have the form CALL=JSON: write one such as --result call_1=JSON", given))
			continue
		}
		res := api.ForkResult{CallID: id, Content: json.RawMessage(content)}
		if call, turn, ok := strings.Cut(id, "@"); ok {
			n, err := strconv.Atoi(turn)
			if err != nil {
				errs = append(errs, fmt.Errorf("--result %s: the turn after @ is not a number: write one such as %s@2", id, call))
			}
			res.CallID, res.Turn = call, &n
		}
		if !json.Valid(res.Content) {
			res.Content = api.Text(content)
		}
		req.ToolResults = append(req.ToolResults, res)
	}
	return req, wrong(errs)
}

// wrong returns a usage error that joins mistakes, or nil.
func wrong(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return usagef("%w", errors.Join(errs...))
}

// textOf returns the contents of a file, or of standard input for -.
func textOf(file string, in io.Reader) (string, error) {
	if file == "-" {
		return said(file, in)
	}
	b, err := os.ReadFile(file)
	return string(b), err
}
