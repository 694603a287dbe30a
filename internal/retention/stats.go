package retention

import (
	"sync"
	"time"
)

// Stats counts the runs that a cleaner has deleted and has yet to delete.
type Stats struct {
	// Deleted counts the runs that this cleaner deleted because they or the run above them had expired.
	Deleted int64

	// Backlog is the number of expired runs that this cleaner has found and not deleted yet, without the runs
	// below them. A pass looks some 10,000 runs ahead.
	Backlog int

	// Age is the time since the oldest of them expired; 0 if no run has expired.
	Age time.Duration
}

// Stats returns the counts so far. It is safe for concurrent use.
func (c *Cleaner) Stats() Stats {
	c.stats.mu.Lock()
	defer c.stats.mu.Unlock()
	s := Stats{Deleted: c.stats.runs}
	var oldest time.Time
	for _, f := range c.stats.found {
		if f.left == 0 {
			continue
		}
		if s.Backlog += f.left; oldest.IsZero() || f.oldest.Before(oldest) {
			oldest = f.oldest
		}
	}
	if !oldest.IsZero() {
		s.Age = max(0, time.Since(oldest))
	}
	return s
}

// stats has the counts that Stats reports.
type stats struct {
	mu    sync.Mutex
	runs  int64
	found map[string]*finding // by rule
}

// finding counts the runs that the last pass of a rule found and has not handled yet, or could not delete. oldest stays
// when its run is deleted: a pass proceeds from the newest run, so that it usually deletes that run last.
type finding struct {
	stats  *stats
	left   int
	oldest time.Time // when its time was over
}

// begin returns the finding of a pass that begins.
func (s *stats) begin(r rule) *finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		s.found = map[string]*finding{}
	}
	f := &finding{stats: s}
	s.found[r.key()] = f
	return f
}

func (s *stats) deleted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs += int64(n)
}

func (f *finding) add(old []member, keep time.Duration) {
	f.stats.mu.Lock()
	defer f.stats.mu.Unlock()
	f.left += len(old)
	for _, m := range old {
		if over := m.finished.Add(keep); f.oldest.IsZero() || over.Before(f.oldest) {
			f.oldest = over
		}
	}
}

func (f *finding) done(n int) {
	f.stats.mu.Lock()
	defer f.stats.mu.Unlock()
	f.left -= n
}
