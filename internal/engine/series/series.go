package series

import (
	"sync"
	"unicode/utf8"
)

// Other is the value of a label whose own value is not admitted.
const Other = "other"

// maxLength bounds an admitted value, in bytes.
const maxLength = 200

// Limiter admits a limited number of values that users choose as labels of metrics. A value stays admitted, for all
// tenants, as long as the Limiter exists, because its time series stay as well. It counts for the tenant for which it
// was admitted. A tenant may add values until it has a quarter of the capacity that other tenants do not use, rounded
// up, so one tenant cannot exclude the others. A Limiter is safe for concurrent use.
type Limiter struct {
	limit int

	mu       sync.Mutex
	admitted map[string]bool
	held     map[string]int // by tenant
}

// New returns a limiter that admits up to limit values.
func New(limit int) *Limiter {
	return &Limiter{limit: limit, admitted: map[string]bool{}, held: map[string]int{}}
}

// Admit reports whether value may be a label, and admits it if the limits allow. A value that is longer than 200 bytes
// or is not valid UTF-8 is never admitted.
func (l *Limiter) Admit(tenant, value string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.admitted[value] {
		return true
	}
	own := l.held[tenant]
	others := len(l.admitted) - own
	if len(l.admitted) == l.limit || own >= (l.limit-others+3)/4 || len(value) > maxLength || !utf8.ValidString(value) {
		return false
	}
	l.admitted[value] = true
	l.held[tenant]++
	return true
}
