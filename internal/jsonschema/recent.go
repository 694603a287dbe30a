package jsonschema

import (
	"encoding/json"
	"sync"
)

// maxRecent is the number of compiled schemas that are kept; the most expensive ones take some megabytes each.
const maxRecent = 8

// recent has the output schemas that were used last: the runs of a batch often share one, and the answers of a run do.
// It is safe for concurrent use.
var recent recentSchemas

type recentSchemas struct {
	mu    sync.Mutex
	known map[string]func() (*Schema, error)
	texts [maxRecent]string // the keys of known; next is the oldest
	next  int
}

// compile returns Compile of a schema that belongs to no definition. It compiles a schema once while it is among the
// last ones that were new.
func (r *recentSchemas) compile(raw json.RawMessage) (*Schema, error) {
	r.mu.Lock()
	get := r.known[string(raw)]
	if get == nil {
		text := string(raw) // raw may change later
		get = sync.OnceValues(func() (*Schema, error) { return Compile(json.RawMessage(text), alone()) })
		if r.known == nil {
			r.known = map[string]func() (*Schema, error){}
		}
		delete(r.known, r.texts[r.next])
		r.known[text], r.texts[r.next] = get, text
		r.next = (r.next + 1) % maxRecent
	}
	r.mu.Unlock()
	return get()
}
