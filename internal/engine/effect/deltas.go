package effect

import (
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// deltaInterval is the minimum time between live events of a response: 20 a second.
const deltaInterval = 50 * time.Millisecond

// deltaStream joins the pieces of a response into live events. It is not safe for concurrent use.
type deltaStream struct {
	live *live
	t    *Turn
	last time.Time
	have bool
	on   bool // a piece of the response has been published
	d    model.Delta
}

func (s *deltaStream) add(d model.Delta) {
	call := d.CallID != "" || d.Name != "" || d.Arguments != ""
	was := s.d.CallID != "" || s.d.Name != "" || s.d.Arguments != ""
	if s.have && (call != was || call && (d.Index != s.d.Index || d.CallID != "")) {
		s.flush()
	}
	s.have = true
	s.d.Text += d.Text
	s.d.Thinking += d.Thinking
	s.d.Index = d.Index
	s.d.CallID += d.CallID
	s.d.Name += d.Name
	s.d.Arguments += d.Arguments
	if time.Since(s.last) >= deltaInterval {
		s.flush()
	}
}

func (s *deltaStream) flush() {
	if !s.have {
		return
	}
	l := s.live.delta(s.t)
	d := s.d
	l.Delta, l.First = &d, !s.on
	s.live.publish(s.t.Run.ID, l)
	s.have, s.on, s.d, s.last = false, true, model.Delta{}, time.Now()
}

// restart publishes the rest of a response that broke off. The next piece is then the first of another
// response.
func (s *deltaStream) restart() {
	s.flush()
	s.on = false
}
