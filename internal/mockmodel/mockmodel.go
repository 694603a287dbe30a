// Package mockmodel is a model server whose answers are written down in advance.
// It speaks the wire formats of OpenAI (chat completions) and Anthropic
// (messages), streamed and whole, so that agents run against it unchanged.
//
// Which answer a request gets follows from the request alone: the script is the
// first whose pattern fits the model's name, and the answer's place in it is the
// number of assistant messages in the request. A restart changes nothing. Failures
// stand before the answer that they delay: each try at the same request gets the
// next of them.
package mockmodel

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config is what the server plays.
type Config struct {
	Scripts []Script `json:"scripts"`

	// Conversations are played to models whose name ends in /ID: the answer is the
	// recorded assistant message in its place.
	Conversations map[string][]model.Scripted `json:"-"`
}

// Script is a list of answers for the models whose name fits a pattern.
type Script struct {
	Model     string   `json:"model,omitempty"` // regular expression; empty fits every model
	Responses []Answer `json:"responses"`

	pattern *regexp.Regexp
}

// Answer is one answer: a scripted response, and how the wire treats it.
type Answer struct {
	model.Scripted

	// CutAfter ends the connection after so many bytes of a streamed body.
	CutAfter int `json:"cut_after,omitempty"`
}

// fails reports whether a client gets no whole response from the answer.
func (a Answer) fails() bool { return a.Error != "" || a.CutAfter > 0 }

// Load reads a script file in YAML or JSON.
func Load(file string) (Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// Parse reads a script in YAML or JSON. Unknown keys are errors.
func Parse(data []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(data, &c, yaml.DisallowUnknownFields); err != nil {
		return Config{}, fmt.Errorf("read script: %w", err)
	}
	for i, s := range c.Scripts {
		p, err := regexp.Compile(s.Model)
		if err != nil {
			return Config{}, fmt.Errorf("scripts[%d].model: %w", i, err)
		}
		c.Scripts[i].pattern = p
	}
	return c, nil
}

// LoadConversations reads recorded conversations, one JSON object a line: an id,
// and messages in OpenAI's chat format.
func LoadConversations(file string) (map[string][]model.Scripted, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string][]model.Scripted{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		var rec struct {
			ID       json.RawMessage `json:"id"`
			Messages []chatMessage   `json:"messages"`
		}
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		var answers []model.Scripted
		for _, m := range rec.Messages {
			if m.Role == "assistant" {
				answers = append(answers, m.scripted())
			}
		}
		all[strings.Trim(string(rec.ID), `"`)] = answers
	}
	return all, lines.Err()
}

// chatMessage is a message in OpenAI's chat format.
type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (m chatMessage) scripted() model.Scripted {
	var s model.Scripted
	_ = json.Unmarshal(m.Content, &s.Text) // null and absent are no text
	for _, c := range m.ToolCalls {
		s.ToolCalls = append(s.ToolCalls, model.ScriptedCall{ID: c.ID, Name: c.Function.Name, Arguments: json.RawMessage(c.Function.Arguments)})
	}
	return s
}

// server plays a Config.
type server struct {
	cfg Config

	mu    sync.Mutex
	tries map[[32]byte]int
}

// maxTries bounds the requests that are remembered to count their tries.
const maxTries = 100_000

// New returns the server.
func New(cfg Config) http.Handler {
	s := &server{cfg: cfg, tries: map[[32]byte]int{}}
	mux := http.NewServeMux()
	for _, prefix := range []string{"", "/v1"} {
		mux.HandleFunc("POST "+prefix+"/chat/completions", s.serve(openAI{}))
		mux.HandleFunc("POST "+prefix+"/messages", s.serve(anthropic{}))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return mux
}

// request is what of a request decides about its answer.
type request struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role string `json:"role"`
	} `json:"messages"`
}

// wire is a provider's format.
type wire interface {
	// whole returns the body of an answer in one piece.
	whole(model string, n int, a Answer) any

	// events returns the lines of a streamed answer.
	events(model string, n int, a Answer) []string

	// failure returns the status and body of an error.
	failure(class model.Class) (int, any)
}

func (s *server) serve(f wire) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req request
		var body json.RawMessage
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(&body); err == nil {
			err = json.Unmarshal(body, &req)
			if err == nil && len(req.Messages) == 0 {
				err = errors.New("messages are missing")
			}
			if err != nil {
				s.fail(w, f, model.InvalidRequest, 0)
				return
			}
		} else {
			s.fail(w, f, model.InvalidRequest, 0)
			return
		}
		n := 0
		for _, m := range req.Messages {
			if m.Role == "assistant" {
				n++
			}
		}
		a, ok := s.answer(req.Model, n, sha256.Sum256(body))
		if !ok {
			s.fail(w, f, model.InvalidRequest, 0)
			return
		}
		timer := time.NewTimer(time.Duration(a.Delay))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		switch {
		case a.Error == model.Transport:
			panic(http.ErrAbortHandler) // closes the connection without an answer
		case a.Error != "":
			s.fail(w, f, a.Error, time.Duration(a.RetryAfter))
		case req.Stream:
			stream(w, f.events(req.Model, n, a), a.CutAfter)
		default:
			write(w, http.StatusOK, f.whole(req.Model, n, a))
		}
	}
}

// answer finds the answer to a request with n assistant messages.
func (s *server) answer(name string, n int, id [32]byte) (Answer, bool) {
	if answers, ok := s.cfg.Conversations[path.Base(name)]; ok {
		if n >= len(answers) {
			return Answer{}, false
		}
		return Answer{Scripted: answers[n]}, true
	}
	for _, sc := range s.cfg.Scripts {
		if sc.pattern == nil || sc.pattern.MatchString(name) {
			return pick(sc.Responses, n, s.try(id))
		}
	}
	return Answer{}, false
}

// pick returns the answer after n whole ones, or the failure before it that a try
// gets.
func pick(answers []Answer, n, try int) (Answer, bool) {
	for i, a := range answers {
		if n > 0 {
			if !a.fails() {
				n--
			}
			continue
		}
		if !a.fails() || try == 0 {
			return answers[i], true
		}
		try--
	}
	return Answer{}, false
}

// try counts the requests that are alike, from 0.
func (s *server) try(id [32]byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tries) > maxTries {
		clear(s.tries)
	}
	s.tries[id]++
	return s.tries[id] - 1
}

func (s *server) fail(w http.ResponseWriter, f wire, class model.Class, after time.Duration) {
	status, body := f.failure(class)
	if after > 0 {
		w.Header().Set("Retry-After-Ms", fmt.Sprint(after.Milliseconds()))
		w.Header().Set("Retry-After", fmt.Sprint(int((after+time.Second-1)/time.Second)))
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone
}

// stream sends lines as server-sent events, and cuts the connection after so many
// bytes if it is told to.
func stream(w http.ResponseWriter, events []string, cut int) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	sent := 0
	for _, e := range events {
		if cut > 0 && sent+len(e) >= cut {
			_, _ = w.Write([]byte(e[:cut-sent])) // as above
			_ = rc.Flush()
			panic(http.ErrAbortHandler)
		}
		if _, err := w.Write([]byte(e)); err != nil {
			return
		}
		sent += len(e)
		if rc.Flush() != nil {
			return
		}
	}
}

// parts returns the text of an answer in words, and its calls with ids.
func parts(a Answer, n int) (words []string, calls []state.Part) {
	if a.Text != "" {
		words = strings.SplitAfter(a.Text, " ")
	}
	for i, c := range a.ToolCalls {
		p := state.Part{ID: c.ID, Name: c.Name, Arguments: string(c.Arguments)}
		if p.ID == "" {
			p.ID = fmt.Sprintf("call_%d_%d", n, i)
		}
		if p.Arguments == "" {
			p.Arguments = "{}"
		}
		calls = append(calls, p)
	}
	return words, calls
}

// usage is what an answer reports to have cost.
func usage(a Answer) model.ScriptedUsage {
	if a.Usage != nil {
		return *a.Usage
	}
	return model.ScriptedUsage{InputTokens: 10, OutputTokens: int64(len(a.Text)/4 + 5)}
}
