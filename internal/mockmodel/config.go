package mockmodel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Config is the configuration of a Server. A server with the zero Config answers every request with an error.
type Config struct {
	// Scripts are tried in order: the first that matches a request gives the response.
	Scripts []Script `json:"scripts,omitempty"`

	// Conversations are recorded conversations. A request that selects one gets its response from it, not from a
	// script.
	Conversations []Conversation `json:"conversations,omitempty"`

	// ConversationFiles are files of conversations, which Load reads: JSON, one conversation per line. Load resolves
	// their names relative to its own file.
	ConversationFiles []string `json:"conversation_files,omitempty"`

	// Play is a file with a recorded response, or a folder of such files, for requests that no script or conversation
	// answers. Load resolves the name relative to its own file.
	Play string `json:"play,omitempty"`

	// APIKey is the only key that the server accepts. Empty: it accepts every key, and none.
	APIKey string `json:"api_key,omitempty"`

	// CacheMinute is the duration of a minute in the lifetimes of the prompt cache. Default: a minute. With a second,
	// an entry of five minutes ends five seconds after its last use.
	CacheMinute model.Duration `json:"cache_minute,omitempty"`
}

// Count selects how the position in a script is counted.
type Count string

// The values of Script.Count.
const (
	// CountHistory is the default: the position is the number of assistant messages in the request, so a restarted
	// server and a repeated request give the same response. Responses that fail (error, cut or cut_after) do not count:
	// the server returns each of them once in a conversation, before the next response, and records only in memory that
	// it has done so.
	CountHistory Count = "history"

	// CountCalls counts the requests of a conversation, also those with failed responses. A restarted server begins
	// again.
	CountCalls Count = "calls"
)

// Script is a list of responses for the requests that it matches.
type Script struct {
	// Model is a regular expression for the name of the model; empty matches every name.
	Model string `json:"model,omitempty"`

	// Match is a regular expression for the conversation, which has a line "role: text" for each message. Empty matches
	// every conversation.
	Match string `json:"match,omitempty"`

	Count     Count      `json:"count,omitempty"`
	Repeat    bool       `json:"repeat,omitempty"` // begin again after the last response, instead of failing
	Responses []Response `json:"responses"`
}

// Response is one response: everything that a scripted model can do, and failures of the connection.
type Response struct {
	model.Scripted

	// Pace is the pause before each piece of a stream except the first.
	Pace model.Duration `json:"pace,omitempty"`

	// Chunk is the length of the pieces, in characters; 0 means a word.
	Chunk int `json:"chunk,omitempty"`

	// Cut ends the stream before its final event, without an error.
	Cut bool `json:"cut,omitempty"`

	// Play is a file with a recorded response, which the server sends byte for byte. Load resolves the name relative to
	// its own file.
	Play string `json:"play,omitempty"`

	// CutAfter breaks the connection after this many bytes of the body; 0 means never.
	CutAfter int64 `json:"cut_after,omitempty"`
}

// fails reports whether the client gets no usable response.
func (r Response) fails() bool { return r.Error != "" || r.Cut || r.CutAfter > 0 }

// Conversation is a recorded conversation. A request selects it with the model "<anything>/<id>", or with its id as
// "conversation" in the metadata. If the request has n assistant messages, the response is the recorded assistant
// message n, counted from 0: the same text, call ids and arguments, byte for byte. After the last one, the response is
// an error (script_exhausted).
type Conversation struct {
	ID       ID        `json:"id"`
	Messages []Message `json:"messages"`
}

// ID is a string, or in JSON also a number.
type ID string

// UnmarshalJSON decodes a string or a number.
func (i *ID) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*i = ID(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("conversation id %s is neither a text nor a number: write one of them", b)
	}
	*i = ID(n)
	return nil
}

// Message is a message in OpenAI's format.
type Message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`

	Name       string `json:"name,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

// ToolCall is a tool call in OpenAI's format.
type ToolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// Load reads a configuration from a YAML or JSON file, or conversations from a file whose name ends in .jsonl. It
// refuses unknown keys of a configuration.
func Load(path string) (Config, error) {
	if filepath.Ext(path) == ".jsonl" {
		list, err := LoadConversations(path)
		return Config{Conversations: list}, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read mock model: %w: name a script that this user can read", err)
	}
	c, err := parse(b)
	if err != nil {
		return Config{}, fmt.Errorf("read mock model %s: correct the file: %w", path, err)
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

// LoadConversations reads a file with one recorded conversation per line, in JSON.
func LoadConversations(path string) ([]Conversation, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read conversations: %w: name a file that this user can read", err)
	}
	list, err := parseConversations(b)
	if err != nil {
		return nil, fmt.Errorf("read conversations %s: %w", path, err)
	}
	return list, nil
}

// parseConversations parses one conversation per line. It ignores unknown fields, which the recorder may have added.
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
			return nil, fmt.Errorf("line %d is not a conversation in JSON (%w): correct it", n, err)
		}
		if c.ID == "" {
			return nil, fmt.Errorf("line %d has no id: add one", n)
		}
		list = append(list, c)
	}
	return list, lines.Err()
}

// compiled is a script with its compiled expressions.
type compiled struct {
	Script
	model *regexp.Regexp
	match *regexp.Regexp
}

// errorClasses are the valid values of Response.Error.
var errorClasses = []model.Class{
	model.RateLimited, model.Overloaded, model.PromptTooLong, model.InvalidRequest, model.Auth, model.Transport,
	model.Quota, model.ContentFilter, model.Timeout,
}

var stops = []model.Stop{
	"", model.StopEnd, model.StopToolCalls, model.StopMaxOutputTokens, model.StopRefusal, model.StopContentFilter, model.StopPause,
}

// compile checks the configuration and compiles the scripts.
func (c Config) compile() ([]compiled, error) {
	if c.CacheMinute < 0 {
		return nil, fmt.Errorf("cache_minute is %s: write 0 or more", time.Duration(c.CacheMinute))
	}
	out := make([]compiled, len(c.Scripts))
	for i, s := range c.Scripts {
		byModel, err := regexp.Compile(s.Model)
		if err != nil {
			return nil, fmt.Errorf("scripts[%d].model: %w: correct the regular expression", i, err)
		}
		byText, err := regexp.Compile(s.Match)
		if err != nil {
			return nil, fmt.Errorf("scripts[%d].match: %w: correct the regular expression", i, err)
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
		return fmt.Errorf("error %q is unknown: write one of %v", r.Error, errorClasses)
	}
	if !slices.Contains(stops, r.Stop) {
		return fmt.Errorf("stop %q is unknown: write one of %v", r.Stop, stops[1:])
	}
	if r.Show != "" && r.Show != model.ShowSettings {
		return fmt.Errorf("show %q is unknown: write settings, or remove it", r.Show)
	}
	if err := r.checkPlay(); err != nil {
		return err
	}
	for i, u := range r.ProviderTools {
		if !model.IsProviderTool(u.Name) {
			return fmt.Errorf("provider_tools[%d].name %q is unknown: write one of %v", i, u.Name, model.ProviderTools())
		}
	}
	for i, c := range r.ToolCalls {
		if c.Name == "" {
			return fmt.Errorf("tool_calls[%d] has no name: name a tool", i)
		}
	}
	for _, f := range []struct {
		name     string
		negative bool
	}{{"chunk", r.Chunk < 0}, {"cut_after", r.CutAfter < 0}, {"delay", r.Delay < 0}, {"pace", r.Pace < 0}, {"retry_after", r.RetryAfter < 0}} {
		if f.negative {
			return fmt.Errorf("%s is negative: write 0 or more", f.name)
		}
	}
	return nil
}
