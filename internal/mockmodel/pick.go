package mockmodel

import (
	"fmt"
	"strings"
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// query has what the server reads of a request, in any format.
type query struct {
	model        string
	conversation string // from the metadata
	key          string // identifies the conversation, for the counters
	text         string // a line "role: text" for each message
	assistants   int    // number of assistant messages
	tokens       int64  // estimated number of input tokens
	stream       bool
	usage        bool // OpenAI: the stream must end with the usage
}

// reply is a response independent of the format.
type reply struct {
	Response
	id    string
	text  string
	calls []replyCall
	usage model.ScriptedUsage
	hour  int64 // tokens written to the cache with a lifetime of an hour

	recorded *recording // if not nil, it is sent instead of everything else
}

type replyCall struct{ id, name, args string }

// problem is an error for a request that has no response.
type problem struct {
	status        int
	kind, message string
}

// longestMemory is the maximum number of conversations whose counters are kept.
const longestMemory = 100_000

// memory holds the counters of conversations. At its limit it drops the oldest. It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	byKey map[string]*counters
	order []string
}

type counters struct {
	calls int
	given map[int]bool // indexes of failing responses that were given
}

// with calls f with the counters of a conversation in a script, which f may change. It holds a lock during the call.
func (m *memory) with(script int, key string, f func(*counters)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key = fmt.Sprintf("%d %s", script, key)
	c := m.byKey[key]
	if c == nil {
		c = &counters{given: map[int]bool{}}
		m.byKey[key] = c
		m.order = append(m.order, key)
	}
	if len(m.order) > longestMemory {
		delete(m.byKey, m.order[0])
		m.order = m.order[1:]
	}
	f(c)
}

// pick returns the response to a request.
func (s *Server) pick(q query) (reply, *problem) {
	if c, ok := s.recorded(q); ok {
		return recordedReply(c, q)
	}
	for i, script := range s.scripts {
		if !script.model.MatchString(q.model) || !script.match.MatchString(q.text) {
			continue
		}
		place, ok := s.place(i, script, q)
		if !ok {
			return reply{}, &problem{400, "script_exhausted", fmt.Sprintf(
				"script %d has %d responses, and the request needs another one after %d assistant messages: add a response", i, len(script.Responses), q.assistants)}
		}
		out := scriptedReply(script.Responses[place], place, q)
		if played, ok := s.files[out.Play]; ok {
			out.recorded = &played
		}
		return out, nil
	}
	if len(s.plays) > 0 {
		played, p := s.played(q)
		return reply{recorded: &played}, p
	}
	return reply{}, &problem{404, "not_found", fmt.Sprintf("The model `%s` does not exist or you do not have access to it.", q.model)}
}

func (s *Server) recorded(q query) (Conversation, bool) {
	if c, ok := s.conversations[ID(q.conversation)]; ok && q.conversation != "" {
		return c, true
	}
	if i := strings.LastIndexByte(q.model, '/'); i >= 0 {
		c, ok := s.conversations[ID(q.model[i+1:])]
		return c, ok
	}
	return Conversation{}, false
}

// place returns the index of the response in script n.
func (s *Server) place(n int, script compiled, q query) (place int, ok bool) {
	all := len(script.Responses)
	if all == 0 {
		return 0, false
	}
	if script.Count == CountCalls {
		s.memory.with(n, q.key, func(c *counters) { place = c.calls; c.calls++ })
		if script.Repeat {
			place %= all
		}
		return place, place < all
	}
	answers := 0
	for _, r := range script.Responses {
		if !r.fails() {
			answers++
		}
	}
	want := q.assistants
	if script.Repeat && answers > 0 {
		want %= answers
	}
	seen := 0
	for i, r := range script.Responses {
		switch {
		case !r.fails() && seen == want:
			return i, true
		case !r.fails():
			seen++
		case seen == want && s.giveOnce(n, i, q):
			return i, true
		}
	}
	return 0, false
}

func (s *Server) giveOnce(script, place int, q query) (first bool) {
	s.memory.with(script, q.key, func(c *counters) {
		first = !c.given[place]
		c.given[place] = true
	})
	return first
}

func scriptedReply(r Response, place int, q query) reply {
	out := reply{Response: r, id: fmt.Sprintf("mock-%d-%d", q.assistants, place), text: r.Text}
	for i, c := range r.ToolCalls {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", q.assistants, i)
		}
		out.calls = append(out.calls, replyCall{id, c.Name, c.Text()})
	}
	if r.Usage != nil {
		out.usage = *r.Usage
	} else {
		out.usage = out.estimate(q)
	}
	return out
}

func recordedReply(c Conversation, q query) (reply, *problem) {
	seen := 0
	for _, m := range c.Messages {
		if m.Role != "assistant" {
			continue
		}
		if seen < q.assistants {
			seen++
			continue
		}
		out := reply{id: fmt.Sprintf("mock-%s-%d", c.ID, seen)}
		if m.Content != nil {
			out.text = *m.Content
		}
		for _, t := range m.ToolCalls {
			out.calls = append(out.calls, replyCall{t.ID, t.Function.Name, t.Function.Arguments})
		}
		out.usage = out.estimate(q)
		return out, nil
	}
	return reply{}, &problem{400, "script_exhausted", fmt.Sprintf(
		"conversation %s has %d assistant messages, and the request needs another one: add one to the recording", c.ID, seen)}
}

// estimate counts a token for every four bytes, so that the usage is always the same.
func (r reply) estimate(q query) model.ScriptedUsage {
	n := len(r.text) + len(r.Thinking)
	for _, c := range r.calls {
		n += len(c.name) + len(c.args)
	}
	return model.ScriptedUsage{InputTokens: q.tokens, OutputTokens: int64(n/4) + 1}
}

// cached adds to the usage what was read from the prompt cache, and what was written to it.
func (r *reply) cached(u cacheUse) {
	r.usage.CacheReadTokens, r.usage.CacheWriteTokens, r.hour = u.read, u.write, u.hour
}

// pieces splits a text according to Chunk.
func (r reply) pieces(text string) []string {
	if r.Chunk == 0 {
		return strings.SplitAfter(text, " ")
	}
	var out []string
	for runes := []rune(text); len(runes) > 0; {
		n := min(r.Chunk, len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}
