package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/slackevents"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// app passes messages of people on to runs, and shows each run in its thread. It stores nothing itself: the metadata
// of a run names its thread, and the metadata of each message that the app posts names the event that it shows.
type app struct {
	config

	log    *slog.Logger
	slack  *slack.Client
	runs   *turnpike.Client
	wanted chan conversation // that run must follow
}

// conversation is a thread of Slack and its run.
type conversation struct{ channel, thread, run string }

// Keys of the metadata of runs.
const (
	metaApp     = "app" // is "slack"
	metaChannel = "slack_channel"
	metaThread  = "slack_thread"  // time stamp of its first message
	metaMessage = "slack_message" // time stamp of the message that started the run
)

const (
	tokenLifetime = time.Minute
	maxBody       = 1 << 20
	followDelay   = 5 * time.Second // between an error of a follower and the next try
	lookBack      = 24 * time.Hour  // a run may end while the app is down: run also follows those that ended since
)

// run follows the runs that an earlier process has left, and those that requests name, until ctx ends. It returns when
// the last follower has ended.
func (a *app) run(ctx context.Context) error {
	var followers sync.WaitGroup
	defer followers.Wait()
	ended := make(chan conversation)
	again := map[conversation]bool{} // has the followed ones; true: a message has come since
	follow := func(c conversation) {
		if _, ok := again[c]; ok {
			again[c] = true
			return
		}
		again[c] = false
		followers.Go(func() {
			a.follow(ctx, c)
			select {
			case ended <- c:
			case <-ctx.Done():
			}
		})
	}
	left, err := a.unanswered(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("list the runs: %w", err)
	}
	for _, c := range left {
		follow(c)
	}
	for {
		select {
		case c := <-a.wanted:
			follow(c)
		case c := <-ended:
			more := again[c]
			delete(again, c)
			if more {
				follow(c)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// unanswered returns the conversations whose run has not ended, or ended a short time ago.
func (a *app) unanswered(ctx context.Context) ([]conversation, error) {
	var all []conversation
	for i, err := range a.runs.Runs(ctx, turnpike.Filter{Metadata: map[string]string{metaApp: "slack"}}) {
		if err != nil {
			return nil, err
		}
		if !i.Terminal() || time.Since(i.FinishedAt.Time) < lookBack {
			all = append(all, conversation{i.Metadata[metaChannel], i.Metadata[metaThread], i.ID})
		}
	}
	return all, nil
}

// follow shows a run in its thread until the run has ended.
func (a *app) follow(ctx context.Context, c conversation) {
	log := a.log.With("run", c.run, "channel", c.channel, "thread", c.thread)
	for {
		err := newThread(a.slack, a.runs, c, a.editInterval, log).follow(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if refused(err) || errors.Is(err, turnpike.ErrNotFound) {
			log.Error("run not shown in Slack", "error", err, "hint", "add the app to the channel, with the scopes in README.md; if the gateway has no such run, it was deleted and there is nothing to do")
			return
		}
		log.Warn("run not followed, retrying", "error", err, "hint", reach(err))
		if sleep(ctx, followDelay) != nil {
			return
		}
	}
}

// routes returns the handler of requests from Slack.
func (a *app) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /slack/events", a.signed(a.event))
	mux.HandleFunc("POST /slack/actions", a.signed(a.action))
	return mux
}

// signed passes on the bodies of requests that Slack signed in the last five minutes, and refuses others with 401. It
// answers 503 if next fails or takes longer than Slack waits: Slack then repeats an event, and shows the person that a
// button failed.
func (a *app) signed(next func(ctx context.Context, body []byte) (answer string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), a.answerTimeout)
		defer cancel()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		check, err := slack.NewSecretsVerifier(r.Header, a.slackSecret)
		if err == nil {
			_, _ = check.Write(body) // a hash returns no error
			err = check.Ensure()
		}
		if err != nil {
			a.log.Warn("refused a request without a valid signature of Slack", "error", err, "hint", "if Slack sent it, check SLACK_SIGNING_SECRET and the clock of this machine")
			http.Error(w, "the signature of Slack is missing, expired or wrong: check the signing secret and the clock of the app's machine", http.StatusUnauthorized)
			return
		}
		answer, err := next(ctx, body)
		if err != nil {
			a.log.Warn("request from Slack failed, Slack or the user retries", "path", r.URL.Path, "error", err, "hint", reach(err))
			http.Error(w, "the request failed, and the app's log has the cause: try again", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, answer)
	}
}

// message is a message of a person.
type message struct {
	conversation // without a run

	ts, user, text string
	starts         bool // starts a run if the thread has none
}

// event takes an event of the Events API.
func (a *app) event(ctx context.Context, body []byte) (string, error) {
	e, err := slackevents.ParseEvent(body, slackevents.OptionNoVerifyToken())
	if err != nil {
		return "", nil //nolint:nilerr // the library does not have this type of event: the app needs none of them
	}
	if v, ok := e.Data.(*slackevents.EventsAPIURLVerificationEvent); ok {
		return v.Challenge, nil
	}
	switch m := e.InnerEvent.Data.(type) {
	case *slackevents.AppMentionEvent:
		if m.BotID == "" {
			return "", a.say(ctx, newMessage(m.Channel, m.ThreadTimeStamp, m.TimeStamp, m.User, m.Text, true))
		}
	case *slackevents.MessageEvent:
		// Edits and joins have a subtype. The app ignores messages of apps: they include its own.
		if m.SubType == "" && m.BotID == "" && m.User != "" {
			return "", a.say(ctx, newMessage(m.Channel, m.ThreadTimeStamp, m.TimeStamp, m.User, m.Text, m.ChannelType == "im"))
		}
	}
	return "", nil
}

// mention matches the name of the app at the beginning of a message.
var mention = regexp.MustCompile(`^\s*<@[A-Z0-9]+>\s*`)

func newMessage(channel, thread, ts, user, text string, starts bool) message {
	if thread == "" {
		thread = ts
	}
	text = html.UnescapeString(mention.ReplaceAllString(text, ""))
	return message{conversation: conversation{channel: channel, thread: thread}, ts: ts, user: user, text: text, starts: starts}
}

// say brings a message to the run of its thread. Slack repeats an event, with its event_id, until it gets an answer,
// and a mention in a thread is two events with different ids. All of them have the time stamp of the message, so this
// is the key.
func (a *app) say(ctx context.Context, m message) error {
	err := a.deliver(ctx, m)
	if err == nil || errors.Is(err, turnpike.ErrUnavailable) || ctx.Err() != nil {
		return err // if it is not nil, Slack repeats the event
	}
	a.log.Error("message refused", "channel", m.channel, "thread", m.thread, "error", err, "hint", "check AGENT and the roles of TURNPIKE_TOKEN")
	return a.tell(ctx, m.conversation, m.user, "I cannot take this message: "+err.Error())
}

func (a *app) deliver(ctx context.Context, m message) error {
	run, found, err := a.find(ctx, m.conversation)
	if err != nil || !found && !m.starts {
		return err
	}
	if !found {
		r, err := a.runs.Submit(ctx, turnpike.Submission{
			Agent: a.agent, Input: m.text, Key: "slack:" + m.channel + ":" + m.thread, Deltas: true,
			Metadata: map[string]string{metaApp: "slack", metaChannel: m.channel, metaThread: m.thread, metaMessage: m.ts},
		})
		if err == nil {
			return a.want(ctx, m.conversation, r.ID())
		}
		// Another message of the thread may have started the run a moment ago.
		if run, found, _ = a.find(ctx, m.conversation); !errors.Is(err, turnpike.ErrConflict) || !found {
			return err
		}
	}
	if run.Metadata[metaMessage] != m.ts {
		if err := a.signal(ctx, run, m); err != nil {
			return err
		}
	}
	return a.want(ctx, m.conversation, run.ID)
}

// find returns the run of a thread.
func (a *app) find(ctx context.Context, c conversation) (i turnpike.Info, found bool, err error) {
	of := turnpike.Filter{Metadata: map[string]string{metaChannel: c.channel, metaThread: c.thread}}
	for i, err := range a.runs.Runs(ctx, of) {
		return i, err == nil, err
	}
	return i, false, nil
}

// signal sends a message to a run, as the answer if the run waits for one to a question.
func (a *app) signal(ctx context.Context, run turnpike.Info, m message) error {
	id := "slack:" + m.channel + ":" + m.ts
	r := a.runs.RunByID(run.ID)
	if w := run.Waiting; w != nil && slices.ContainsFunc(w.Calls, func(c api.WaitCall) bool { return c.Needs == string(state.NeedAnswer) }) {
		err := r.Signal(ctx, turnpike.Signal{SignalID: id, Answer: &m.text})
		if !errors.Is(err, turnpike.ErrNotWaiting) {
			return err
		}
	}
	return r.Signal(ctx, turnpike.Signal{SignalID: id, Message: api.Text(m.text)})
}

// want lets run follow a run.
func (a *app) want(ctx context.Context, c conversation, run string) error {
	c.run = run
	select {
	case a.wanted <- c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The ids of the buttons.
const (
	approve = "approve"
	deny    = "deny"
)

// action takes a click on a button. It leaves the message as it is: the follower of the run replaces it when the log
// has the decision, wherever people decide.
func (a *app) action(ctx context.Context, body []byte) (string, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return "", err
	}
	var click slack.InteractionCallback
	if err := json.Unmarshal([]byte(form.Get("payload")), &click); err != nil {
		return "", err
	}
	for _, button := range click.ActionCallback.BlockActions {
		if button.ActionID != approve && button.ActionID != deny {
			continue
		}
		value, err := url.ParseQuery(button.Value)
		if err != nil {
			return "", err
		}
		thread := conversation{click.Channel.ID, click.Message.ThreadTimestamp, value.Get("run")}
		if len(a.approvers) > 0 && !slices.Contains(a.approvers, click.User.ID) {
			return "", a.tell(ctx, thread, click.User.ID, "You may not decide about this call.")
		}
		call := turnpike.Decision{CallID: value.Get("call"), Hash: value.Get("hash")}
		err = a.decide(ctx, button.ActionID, thread.run, call, click.User.ID)
		switch {
		case errors.Is(err, turnpike.ErrNotWaiting), errors.Is(err, turnpike.ErrStale), errors.Is(err, turnpike.ErrEnded), errors.Is(err, turnpike.ErrNotFound):
			return "", a.tell(ctx, thread, click.User.ID, "Thank you, but this call no longer waits for a decision.")
		case err != nil:
			return "", err
		}
	}
	return "", nil
}

// decide approves or denies a call with a token for the user and this run, so that the log names the user. A gateway
// without authentication issues no tokens; its log names no one.
func (a *app) decide(ctx context.Context, action, run string, call turnpike.Decision, user string) error {
	as := a.runs
	if a.token != "" {
		made, err := api.New(a.gateway, api.WithToken(a.token)).CreateToken(ctx, api.TokenRequest{
			User: user, Roles: []string{string(api.RoleApprover)}, Run: run, ExpiresIn: new(model.Duration(tokenLifetime)),
		})
		if err != nil {
			return err
		}
		if as, err = turnpike.Dial(a.gateway, turnpike.DialOptions{Token: made.Text}); err != nil {
			return err
		}
	}
	if action == approve {
		return as.RunByID(run).Approve(ctx, call)
	}
	call.Reason = "a person denied the call in Slack"
	return as.RunByID(run).Deny(ctx, call)
}

// tell writes to one user, in a thread.
func (a *app) tell(ctx context.Context, c conversation, user, text string) error {
	_, err := a.slack.PostEphemeralContext(ctx, c.channel, user, slack.MsgOptionText(text, true), slack.MsgOptionTS(c.thread))
	return err
}

// refused reports whether Slack would answer the same request with the same error.
func refused(err error) bool {
	r, ok := errors.AsType[slack.SlackErrorResponse](err)
	passes := strings.HasSuffix(r.Err, "_error") || strings.HasSuffix(r.Err, "_unavailable") || strings.HasSuffix(r.Err, "limited")
	return ok && !passes
}

// reach returns the hint about a call that failed and may succeed later.
func reach(err error) string {
	switch {
	case errors.Is(err, turnpike.ErrUnavailable):
		return "check that the gateway is reachable"
	case errors.Is(err, turnpike.ErrUnauthenticated), errors.Is(err, turnpike.ErrForbidden):
		return "check that TURNPIKE_TOKEN is a valid API key with the roles submitter and issuer"
	case refused(err):
		return "check the scopes of the app at Slack, and whether it is in the channel"
	default:
		return "check that Slack and the gateway are reachable"
	}
}

// sleep waits, and returns the error of ctx if that ends earlier.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
