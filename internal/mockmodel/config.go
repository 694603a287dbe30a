package mockmodel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Config says what the server answers. The zero value answers nothing.
type Config struct {
	// Scripts are tried in order; the first that matches a request answers it.
	Scripts []Script `json:"scripts,omitempty"`

	// Conversations are played back. They come before scripts.
	Conversations []Conversation `json:"conversations,omitempty"`

	// ConversationFiles are read by Load, relative to the file that names them:
	// JSON, one conversation a line.
	ConversationFiles []string `json:"conversation_files,omitempty"`

	// Play is a file with a recorded answer, or a folder of them, for requests that
	// nothing else answers. Load takes it relative to the file that names it.
	Play string `json:"play,omitempty"`

	// APIKey, if set, is the only key that the server accepts.
	APIKey string `json:"api_key,omitempty"`

	// CacheMinute is how long a minute of the prompt cache takes; 0 is a minute. With a second, an entry of
	// five minutes ends five seconds after its last use.
	CacheMinute model.Duration `json:"cache_minute,omitempty"`
}

// Count says what the place in a script is counted by.
type Count string

// The ways of counting.
const (
	// CountHistory is the default: the place is the number of assistant messages in
	// the request. It needs no memory, so a restarted server and a repeated request
	// give the same answer. Responses that fail take no place: each is given once a
	// conversation, before the answer that follows it.
	CountHistory Count = "history"

	// CountCalls counts the requests of a conversation, failed ones included.
	CountCalls Count = "calls"
)

// Script is a list of responses for the requests that it matches.
type Script struct {
	// Model is a regular expression on the model's name; empty is any.
	Model string `json:"model,omitempty"`

	// Match is a regular expression on the conversation: each message as
	// "role: text", on lines of their own. Empty is any.
	Match string `json:"match,omitempty"`

	Count     Count      `json:"count,omitempty"`
	Repeat    bool       `json:"repeat,omitempty"` // begin again after the last response
	Responses []Response `json:"responses"`
}

// Response is one answer: everything that a scripted model can do, and what can
// go wrong on the way.
type Response struct {
	model.Scripted

	// Pace is the pause before each piece of a stream but the first.
	Pace model.Duration `json:"pace,omitempty"`

	// Chunk is the length of the pieces, in characters; 0 is a word.
	Chunk int `json:"chunk,omitempty"`

	// Cut ends the stream in an orderly way before the event that ends it.
	Cut bool `json:"cut,omitempty"`

	// Play is a file with a recorded answer, sent byte for byte. Load takes it
	// relative to the file that names it.
	Play string `json:"play,omitempty"`

	// CutAfter breaks the connection after this many bytes of the body; 0 is never.
	CutAfter int64 `json:"cut_after,omitempty"`
}

// fails reports whether a client gets no usable answer.
func (r Response) fails() bool { return r.Error != "" || r.Cut || r.CutAfter > 0 }

// Conversation is a recorded conversation. A request selects it with the model "<anything>/<id>", or with its
// id as "conversation" in the metadata. If the request holds n assistant messages, the answer is the recorded
// assistant message n, counted from 0: the same text, call ids and arguments, byte for byte. Past the last
// one the answer is an error (script_exhausted).
type Conversation struct {
	ID       ID        `json:"id"`
	Messages []Message `json:"messages"`
}

// ID is a text, or a number in JSON.
type ID string

// UnmarshalJSON reads a text or a number.
func (i *ID) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*i = ID(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("conversation id %s: want a text or a number", b)
	}
	*i = ID(n)
	return nil
}

// Message is a message as OpenAI writes it.
type Message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`

	Name       string `json:"name,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

// ToolCall is a tool call as OpenAI writes it.
type ToolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// Load reads a configuration from a YAML or JSON file, or conversations from a
// file that ends in .jsonl. Unknown keys of a configuration are errors.
func Load(path string) (Config, error) {
	if filepath.Ext(path) == ".jsonl" {
		list, err := LoadConversations(path)
		return Config{Conversations: list}, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read mock model: %w", err)
	}
	c, err := parse(b)
	if err != nil {
		return Config{}, fmt.Errorf("read mock model %s: %w", path, err)
	}
	near := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(filepath.Dir(path), name)
	}
	c.Play = near(c.Play)
	for _, s := range c.Scripts {
		for i := range s.Responses {
			s.Responses[i].Play = near(s.Responses[i].Play)
		}
	}
	for _, name := range c.ConversationFiles {
		list, err := LoadConversations(near(name))
		if err != nil {
			return Config{}, err
		}
		c.Conversations = append(c.Conversations, list...)
	}
	return c, nil
}

func parse(b []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(b, &c); err != nil {
		return Config{}, err
	}
	_, err := c.compile()
	return c, err
}

// LoadConversations reads a file with one recorded conversation a line, in JSON.
func LoadConversations(path string) ([]Conversation, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read conversations: %w", err)
	}
	list, err := parseConversations(b)
	if err != nil {
		return nil, fmt.Errorf("read conversations %s: %w", path, err)
	}
	return list, nil
}

// parseConversations reads one conversation a line. Fields that it does not know
// are those of the recorder.
func parseConversations(b []byte) ([]Conversation, error) {
	var list []Conversation
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var c Conversation
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if c.ID == "" {
			return nil, fmt.Errorf("line %d has no id: add one", n)
		}
		list = append(list, c)
	}
	return list, lines.Err()
}

// compiled is a script with its expressions.
type compiled struct {
	Script
	model *regexp.Regexp
	match *regexp.Regexp
}

// errorClasses are those that a response may fail with.
var errorClasses = []model.Class{
	model.RateLimited, model.Overloaded, model.PromptTooLong, model.InvalidRequest, model.Auth, model.Transport,
	model.Quota, model.ContentFilter, model.Timeout,
}

var stops = []model.Stop{
	"", model.StopEnd, model.StopToolCalls, model.StopMaxOutputTokens, model.StopRefusal, model.StopContentFilter, model.StopPause,
}

// compile checks the scripts.
func (c Config) compile() ([]compiled, error) {
	if c.CacheMinute < 0 {
		return nil, fmt.Errorf("cache_minute is %s: want 0 or more", time.Duration(c.CacheMinute))
	}
	out := make([]compiled, len(c.Scripts))
	for i, s := range c.Scripts {
		byModel, err := regexp.Compile(s.Model)
		if err != nil {
			return nil, fmt.Errorf("scripts[%d].model: %w", i, err)
		}
		byText, err := regexp.Compile(s.Match)
		if err != nil {
			return nil, fmt.Errorf("scripts[%d].match: %w", i, err)
		}
		if s.Count != "" && s.Count != CountHistory && s.Count != CountCalls {
			return nil, fmt.Errorf("scripts[%d].count is %q: write history or calls", i, s.Count)
		}
		for j, r := range s.Responses {
			if err := r.check(); err != nil {
				return nil, fmt.Errorf("scripts[%d].responses[%d]: %w", i, j, err)
			}
		}
		out[i] = compiled{s, byModel, byText}
	}
	return out, nil
}

func (r Response) check() error {
	if r.Error != "" && !slices.Contains(errorClasses, r.Error) {
		return fmt.Errorf("error %q: want one of %v", r.Error, errorClasses)
	}
	if !slices.Contains(stops, r.Stop) {
		return fmt.Errorf("stop %q: want one of %v", r.Stop, stops[1:])
	}
	if r.Show != "" && r.Show != model.ShowSettings {
		return fmt.Errorf("show %q: want settings", r.Show)
	}
	if err := r.checkPlay(); err != nil {
		return err
	}
	for i, u := range r.ProviderTools {
		if !model.IsProviderTool(u.Name) {
			return fmt.Errorf("provider_tools[%d].name %q: want one of %v", i, u.Name, model.ProviderTools())
		}
	}
	for i, c := range r.ToolCalls {
		if c.Name == "" {
			return fmt.Errorf("tool_calls[%d] has no name: name a tool", i)
		}
	}
	if r.Chunk < 0 || r.CutAfter < 0 || r.Delay < 0 || r.Pace < 0 || r.RetryAfter < 0 {
		return errors.New("a length or a duration is negative: write 0 or more")
	}
	return nil
}
