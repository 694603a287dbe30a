package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/slackutilsx"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// thread shows one run in a thread of Slack. The events of the run alone determine the posts of the thread, and the
// metadata of each post names the event that it shows. A process that starts again therefore reads both and changes
// only what differs.
//
// One goroutine reads the events and determines what the posts show. Another one brings them to Slack, as fast as Slack
// permits, so what a post shows may change several times between two edits.
type thread struct {
	conversation

	slack        *slack.Client
	events       *turnpike.Run
	editInterval time.Duration
	log          *slog.Logger
	changed      chan struct{} // has room for one
	read         chan struct{} // closed when all events are read

	mu    sync.Mutex
	posts []*post // in the order in which they are posted
}

// post is a message of the app.
type post struct {
	key        string // follows from the events
	ts         string // its time stamp in Slack; empty: Slack does not have it
	want, have content
	unsure     bool      // Slack may have it: an attempt to post it got no answer
	editable   time.Time // the time of the next edit, at the earliest
}

// content is what a post shows.
type content struct {
	seq     int64  // number of its event; 0: pieces of an answer in flight
	text    string // with Slack's markup
	detail  string // plain text below it
	buttons string // value of the buttons below that; empty: no buttons
}

// after reports whether c replaces what a post shows. Pieces replace only shorter text: a process that starts during an
// answer has no beginning of it, and an attempt that a worker repeats begins with nothing.
func (c content) after(shown content) bool {
	return c.seq > shown.seq || c.seq == 0 && shown.seq == 0 && len(c.text) > len(shown.text)
}

// eventType marks the metadata of posts.
const eventType = "turnpike_post"

const (
	maxText      = 3000             // Slack takes 4,000 characters, and escapes need some
	maxDetail    = 2800             // Slack takes 3,000 in a section
	slackTimeout = 10 * time.Second // of a call
	retryDelay   = 3 * time.Second  // after an error of Slack without a Retry-After
)

func newThread(s *slack.Client, runs *turnpike.Client, c conversation, editInterval time.Duration, log *slog.Logger) *thread {
	return &thread{
		conversation: c, slack: s, events: runs.RunByID(c.run), editInterval: editInterval, log: log,
		changed: make(chan struct{}, 1), read: make(chan struct{}),
	}
}

// follow returns when the run has ended and Slack has all posts.
func (t *thread) follow(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(t.read)
		return t.readEvents(ctx)
	})
	g.Go(func() error { return t.write(ctx) })
	return g.Wait()
}

// readEvents determines from each event what posts show.
func (t *thread) readEvents(ctx context.Context) error {
	var pieces strings.Builder // of the answer in flight
	var answered time.Time     // when the last response was complete
	answers, last := 0, ""     // how many there are, and the last one
	for e, err := range t.events.Events(ctx, 0) {
		if err != nil {
			return err
		}
		switch e.Type {
		case state.LiveTurnStarted: // also after the death of a worker
			pieces.Reset()
		case state.LiveModelDelta:
			// A late piece may follow its whole response.
			if e.Delta != nil && e.Delta.Text != "" && e.At.After(answered) {
				pieces.WriteString(e.Delta.Text)
				t.answer(fmt.Sprintf("answer-%d", answers), pieces.String(), 0)
			}
		case state.EntryModel:
			pieces.Reset()
			answered = e.At.Time
			if text := e.Message.Text(); t.answer(fmt.Sprintf("answer-%d", answers), text, e.Seq) {
				last, answers = text, answers+1
			}
		case state.EntryWaiting:
			for _, c := range e.Waiting.Calls {
				switch c.Needs {
				case state.NeedApproval:
					t.show("call-"+c.Hash, t.question(c, e.Seq))
				case state.NeedAnswer:
					t.answer("question-"+c.ID, e.Waiting.Question, e.Seq)
				default: // the call waits for a program
				}
			}
		case state.EntryDecided:
			if d := e.Approval; d != nil {
				t.show("call-"+d.Hash, decided(e))
			}
		case state.EntryFinished:
			if e.Output != nil && *e.Output != last {
				t.answer(fmt.Sprintf("output-%d", e.Seq), *e.Output, e.Seq)
			}
			if e.Status != state.Completed {
				t.show(fmt.Sprintf("end-%d", e.Seq), content{seq: e.Seq, text: fmt.Sprintf(":warning: The run is %s (%s).", e.Status, e.Reason)})
			}
		default: // people do not need it
		}
	}
	return nil
}

// answer shows a text of any length, and reports whether there is one.
func (t *thread) answer(key, text string, seq int64) bool {
	runes := []rune(strings.TrimSpace(text))
	for i := 0; i*maxText < len(runes); i++ {
		part := string(runes[i*maxText : min(len(runes), (i+1)*maxText)])
		// Unescaped text could notify everyone in the channel.
		t.show(fmt.Sprintf("%s-%d", key, i), content{seq: seq, text: slackutilsx.EscapeMessage(part)})
	}
	return len(runes) > 0
}

// question shows a call that waits for approval.
func (t *thread) question(c state.WaitCall, seq int64) content {
	text := "May I call " + code(c.Tool) + "?"
	if c.Risk != "" {
		text += " It " + slackutilsx.EscapeMessage(c.Risk) + "."
	}
	if c.ArgsFromUntrusted {
		text += " :warning: Its arguments also stand in a text that came from outside."
	}
	// The hash stands for exactly what the person sees.
	value := url.Values{"run": {t.run}, "call": {c.ID}, "hash": {c.Hash}}
	return content{seq: seq, text: text, detail: arguments(c.Arguments), buttons: value.Encode()}
}

// slackUser is the principal of a user who decided with a button.
var slackUser = regexp.MustCompile(`^user:([UW][A-Z0-9]+)$`)

// decided shows what was decided about a call.
func decided(e turnpike.Event) content {
	d, by := e.Approval, ""
	if e.By != nil {
		by = " by " + slackutilsx.EscapeMessage(e.By.Principal)
		if m := slackUser.FindStringSubmatch(e.By.Principal); m != nil {
			by = " by <@" + m[1] + ">"
		}
	}
	text, args := ":white_check_mark: "+code(e.Name)+" was approved"+by, d.Shown
	switch {
	case d.Expired:
		text = ":hourglass: " + code(e.Name) + " was not decided in time"
	case state.Reason(d.Reason).Terminal(): // the end of the run denied it
		text = code(e.Name) + " is no longer needed"
	case d.Decision != state.Approve:
		text = ":no_entry: " + code(e.Name) + " was denied" + by
	case len(d.Arguments) > 0:
		text, args = text+", with other arguments", d.Arguments
	}
	return content{seq: e.Seq, text: text + ".", detail: arguments(args)}
}

// code shows the name of a tool.
func code(tool string) string { return "`" + slackutilsx.EscapeMessage(tool) + "`" }

// arguments shows the arguments of a call, or says that they are too long to be shown.
func arguments(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		b.Reset()
		b.Write(raw)
	}
	if runes := []rune(b.String()); len(runes) > maxDetail {
		return string(runes[:maxDetail]) + "\n… (cut: read the rest before you decide, with turnpike show)"
	}
	return b.String()
}

// show changes what a post shows, unless it shows the same or something later.
func (t *thread) show(key string, c content) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.post(key)
	if same := (content{c.seq, p.want.text, p.want.detail, p.want.buttons}); !c.after(p.want) || p.want.seq > 0 && c == same {
		return
	}
	p.want = c
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// post returns the post with a key. The caller holds t.mu.
func (t *thread) post(key string) *post {
	for _, p := range t.posts {
		if p.key == key {
			return p
		}
	}
	p := &post{key: key}
	t.posts = append(t.posts, p)
	return p
}

// write brings the posts to Slack until all events are read and shown.
func (t *thread) write(ctx context.Context) error {
	if err := t.retry(ctx, t.load); err != nil {
		return err
	}
	for {
		if p := t.next(); p != nil {
			if err := sleep(ctx, time.Until(p.editable)); err != nil {
				return err
			}
			if err := t.retry(ctx, func(ctx context.Context) error { return t.put(ctx, p) }); err != nil {
				return err
			}
			continue
		}
		select {
		case <-t.changed:
		case <-t.read:
			if t.next() == nil {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retry makes a call until Slack accepts or refuses it. Between two attempts it waits as long as Slack demands.
func (t *thread) retry(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(ctx)
		if err == nil || refused(err) {
			return err
		}
		delay := retryDelay
		if limited, ok := errors.AsType[*slack.RateLimitedError](err); ok {
			delay = limited.RetryAfter
		}
		t.log.Warn("call to Slack failed, retrying", "error", err, "delay", delay, "hint", "ignore this if it is rare; otherwise check the status of Slack and the rate limits of the app")
		if err := sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// next returns the first post that differs from Slack, or nil.
func (t *thread) next() *post {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.posts {
		if p.want != p.have {
			return p
		}
	}
	return nil
}

// load reads the posts that Slack has.
func (t *thread) load(ctx context.Context) error {
	q := slack.GetConversationRepliesParameters{ChannelID: t.channel, Timestamp: t.thread, IncludeAllMetadata: true, Limit: 200}
	for {
		all, more, cursor, err := t.slack.GetConversationRepliesContext(ctx, &q)
		if err != nil {
			return err
		}
		for _, m := range all {
			t.found(m)
		}
		if !more {
			return nil
		}
		q.Cursor = cursor
	}
}

// found records a message of the thread that is a post of this run.
func (t *thread) found(m slack.Message) {
	text := func(name string) string { s, _ := m.Metadata.EventPayload[name].(string); return s }
	if m.Metadata.EventType != eventType || text("run") != t.run {
		return
	}
	seq, err := strconv.ParseInt(text("seq"), 10, 64)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.post(text("key"))
	if p.ts != "" {
		return
	}
	p.ts, p.have = m.Timestamp, content{seq: seq, text: m.Text}
	if !p.want.after(p.have) {
		p.want = p.have
	}
}

// put posts or edits a message. It ignores refusals: a person may have deleted the message.
func (t *thread) put(ctx context.Context, p *post) error {
	if p.unsure {
		if err := t.load(ctx); err != nil {
			return err
		}
	}
	t.mu.Lock()
	c, ts := p.want, p.ts
	t.mu.Unlock()
	payload := map[string]any{"run": t.run, "key": p.key, "seq": strconv.FormatInt(c.seq, 10)}
	options := []slack.MsgOption{
		slack.MsgOptionText(c.text, false), slack.MsgOptionMetadata(slack.SlackMetadata{EventType: eventType, EventPayload: payload}),
		// For a preview Slack requests the link, and a link that an attacker made the model write can contain secrets.
		slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl(),
	}
	if c.detail != "" {
		options = append(options, slack.MsgOptionBlocks(blocks(c)...))
	}
	var err error
	if ts == "" {
		_, ts, err = t.slack.PostMessageContext(ctx, t.channel, append(options, slack.MsgOptionTS(t.thread))...)
	} else {
		_, _, _, err = t.slack.UpdateMessageContext(ctx, t.channel, ts, options...)
	}
	if refused(err) {
		t.log.Error("post refused", "post", p.key, "error", err, "hint", "check whether someone deleted the message or archived the channel")
	} else if err != nil {
		_, limited := errors.AsType[*slack.RateLimitedError](err)
		p.unsure = ts == "" && !limited
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p.ts, p.have, p.unsure, p.editable = ts, c, false, time.Now().Add(t.editInterval)
	return nil
}

// blocks returns the layout of a content with a detail.
func blocks(c content) []slack.Block {
	plain := func(s string) *slack.TextBlockObject {
		return slack.NewTextBlockObject(slack.PlainTextType, s, false, false)
	}
	all := []slack.Block{
		slack.NewSectionBlock(slack.NewTextBlockObject(slack.MarkdownType, c.text, false, false), nil, nil),
		slack.NewSectionBlock(plain(c.detail), nil, nil),
	}
	if c.buttons == "" {
		return all
	}
	return append(all, slack.NewActionBlock("",
		slack.NewButtonBlockElement(approve, c.buttons, plain("Approve")).WithStyle(slack.StylePrimary),
		slack.NewButtonBlockElement(deny, c.buttons, plain("Deny")).WithStyle(slack.StyleDanger)))
}
