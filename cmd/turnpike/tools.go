package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/devaddr"
	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

type toolsCmd struct {
	Ls   toolsLsCmd   `cmd:"" default:"withargs" help:"List the tools that services offer, with their instances."`
	Show toolsShowCmd `cmd:"" help:"Show a tool: its schema and its instances."`
	Call toolsCallCmd `cmd:"" help:"Call a tool, as a worker would; exits 0 only if it does not fail."`
}

// toolServer has the flags that select the server on which tools are found.
type toolServer struct {
	NATSURL string `name:"nats-url" env:"TURNPIKE_NATS_URL" help:"NATS server; default that of the turnpike dev running in this directory, else nats://127.0.0.1:4222."`
	Prefix  string `env:"TURNPIKE_PREFIX" default:"turnpike" help:"Prefix of the deployment's subjects."`

	Login app.NATSLogin `embed:""`
}

func (s toolServer) connect() (*nats.Conn, error) {
	address := devaddr.Server(s.NATSURL)
	options, err := s.Login.Login().Options()
	if err != nil {
		return nil, err
	}
	nc, err := natsbus.Connect(address, "turnpike tools", options...)
	if err != nil {
		return nil, natslogin.Advise(err, fmt.Sprintf("check that NATS runs at %s, give another URL with --nats-url, or run this command in the directory in which `turnpike dev` was started", natsbus.Hosts(address)))
	}
	return nc, nil
}

func (s toolServer) discover(e *env) ([]natstool.Service, error) {
	nc, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	return natstool.Discover(e.ctx, nc, s.Prefix, e.tenant)
}

type toolsLsCmd struct{ toolServer }

func (c *toolsLsCmd) Run(e *env) error {
	services, err := c.discover(e)
	if err != nil {
		return err
	}
	text := table("TOOL\tVERSION\tINSTANCES\tCALLS\tERRORS\tDESCRIPTION", services, func(s natstool.Service) string {
		calls, failed := 0, 0
		for _, i := range s.Instances {
			calls, failed = calls+i.Requests, failed+i.Errors
		}
		description, _, _ := strings.Cut(s.Description, "\n")
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%s", s.Name, strings.Join(s.Versions(), ", "), len(s.Instances), calls, failed, description)
	})
	if services == nil {
		services = []natstool.Service{} // a list in JSON
	}
	return e.print(services, text)
}

type toolsShowCmd struct {
	toolServer
	Name string `arg:"" help:"Name of the tool."`
}

func (c *toolsShowCmd) Run(e *env) error {
	services, err := c.discover(e)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(services, func(s natstool.Service) bool { return s.Name == c.Name })
	if i < 0 {
		return fmt.Errorf("no service offers the tool %q: start its service, or correct the name. A service without the discovery protocol of NATS micro is not found here, but workers can call it", c.Name)
	}
	s := services[i]
	schema := "none: any JSON object"
	var pretty bytes.Buffer
	if len(s.Schema) > 0 && json.Indent(&pretty, s.Schema, "", "  ") == nil {
		schema = pretty.String()
	}
	text := fmt.Sprintf("tool      %s\nsubject   %s\n%s\n\narguments %s\n\n", s.Name, s.Subject, s.Description, schema)
	text += table("INSTANCE\tVERSION\tSTARTED\tCALLS\tERRORS\tAVERAGE MS\tLAST ERROR", s.Instances, func(i natstool.Instance) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%.1f\t%s", i.ID, i.Version, i.Started.Local().Format(time.DateTime), i.Requests, i.Errors, i.AverageMS, i.LastError)
	})
	return e.print(s, text)
}

type toolsCallCmd struct {
	toolServer
	Name       string        `arg:"" help:"Name of the tool."`
	Arguments  string        `short:"a" default:"{}" help:"Arguments, a JSON object; @FILE reads them from a file."`
	Timeout    time.Duration `default:"2m" help:"Time limit of the call."`
	Key        string        `help:"Idempotency key; default a new one."`
	Idempotent bool          `help:"Call again, with the same key, if the instance dies."`
}

func (c *toolsCallCmd) Run(e *env) error {
	arguments := []byte(c.Arguments)
	if name, ok := strings.CutPrefix(c.Arguments, "@"); ok {
		var err error
		if arguments, err = os.ReadFile(name); err != nil {
			return named(err)
		}
	}
	var object map[string]any
	if err := json.Unmarshal(arguments, &object); err != nil || object == nil {
		return usagef(`the arguments are not a JSON object: write one such as {"city": "Oslo"}, not %s`, arguments)
	}
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(e.ctx, c.Timeout)
	defer cancel()
	id := ulid.Make().String()
	deadline, _ := ctx.Deadline()
	call := tool.Call{ID: "call_" + id, Name: c.Name, Tenant: e.tenant, Arguments: arguments, IdempotencyKey: c.Key, Idempotent: c.Idempotent, Deadline: deadline}
	if call.IdempotencyKey == "" {
		call.IdempotencyKey = id
	}
	r, err := natstool.New(nc, c.Prefix).Call(ctx, call)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("tool %q did not answer within %s, so it is unknown whether the call took effect: check its service, then repeat the call with --key %s, and with a longer --timeout if it needs more time", c.Name, c.Timeout, call.IdempotencyKey)
	}
	if err != nil {
		return err
	}
	text := r.Content
	if r.Pending {
		text = "pending: the result comes later, as a signal to the run"
	}
	for _, i := range r.Images {
		text += fmt.Sprintf("\n[image %s %s, %d bytes of base64]", i.MediaType, i.URL, len(i.Data))
	}
	for _, f := range r.Files {
		text += fmt.Sprintf("\n%s %d bytes of base64", f.FileLabel(), len(f.Data))
	}
	if err := e.print(called{r.Content, r.IsError, r.Images, r.Files, r.Pending}, text); err != nil {
		return err
	}
	if r.IsError {
		return exitError(1)
	}
	return nil
}

// called is the JSON form of the result of a call.
type called struct {
	Content string        `json:"content"`
	IsError bool          `json:"is_error"`
	Images  []state.Image `json:"images,omitempty"`
	Files   []state.Part  `json:"files,omitempty"`
	Pending bool          `json:"pending,omitempty"`
}
