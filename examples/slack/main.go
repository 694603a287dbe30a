// Slack is an app that answers in threads of Slack: each thread is a run. A mention of the app starts it, and each
// further message continues it. Answers grow while the model writes them, and people approve calls with buttons.
// README.md says how to set it up.
//
//	SLACK_BOT_TOKEN=xoxb-... SLACK_SIGNING_SECRET=... AGENT=converse go run .
package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// config is read from the environment.
type config struct {
	slackToken, slackSecret string   // of the app in Slack
	slackURL                string   // of the Web API
	approvers               []string // ids of the users who may decide about calls; empty: everyone
	gateway, token          string   // of Turnpike; no token: the gateway authenticates no one
	agent                   string
	editInterval            time.Duration // between two edits of a message
	answerTimeout           time.Duration // of a request of Slack, which waits for 3 s
}

func fromEnv() (config, error) {
	c := config{
		slackToken: os.Getenv("SLACK_BOT_TOKEN"), slackSecret: os.Getenv("SLACK_SIGNING_SECRET"), slackURL: slack.APIURL,
		approvers: strings.FieldsFunc(os.Getenv("APPROVERS"), func(r rune) bool { return r == ',' }),
		gateway:   cmp.Or(os.Getenv("TURNPIKE_URL"), api.DefaultURL), token: os.Getenv("TURNPIKE_TOKEN"),
		agent: os.Getenv("AGENT"), editInterval: time.Second, answerTimeout: 2500 * time.Millisecond,
	}
	if c.slackToken == "" || c.slackSecret == "" || c.agent == "" {
		return c, errors.New("SLACK_BOT_TOKEN, SLACK_SIGNING_SECRET and AGENT are required: set them")
	}
	return c, nil
}

// newApp returns the app. It makes no request.
func newApp(c config, log *slog.Logger) (*app, error) {
	runs, err := turnpike.Dial(c.gateway, turnpike.DialOptions{Token: c.token})
	if err != nil {
		return nil, err
	}
	s := slack.New(c.slackToken, slack.OptionAPIURL(c.slackURL), slack.OptionHTTPClient(&http.Client{Timeout: slackTimeout}))
	return &app{config: c, log: log, runs: runs, slack: s, wanted: make(chan conversation)}, nil
}

// serve answers Slack until it fails. It needs no shutdown: the process may be killed at any moment.
func serve() error {
	c, err := fromEnv()
	if err != nil {
		return err
	}
	a, err := newApp(c, slog.Default())
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	server := &http.Server{Addr: cmp.Or(os.Getenv("LISTEN"), "localhost:3000"), Handler: a.routes(), ReadTimeout: c.answerTimeout}
	go func() { failed <- server.ListenAndServe() }()
	go func() { failed <- a.run(context.Background()) }()
	return <-failed
}

func main() {
	slog.Error("app failed", "error", serve(), "hint", "check the variables in README.md, and that the gateway is reachable")
	os.Exit(1)
}
