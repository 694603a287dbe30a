package model

import (
	"context"
	"fmt"
	"sync/atomic"
)

const (
	// longestResponse bounds what one response may keep in memory while it arrives, in bytes: its texts and arguments,
	// and its long events, which repeat them.
	longestResponse = 24 << 20

	// freeResponse is what each response may keep without a reservation, and responseStep what it reserves further
	// memory for at a time.
	freeResponse = 256 << 10
	responseStep = 256 << 10

	// copiesOfResponse is the number of bytes of memory for a byte of a response: as received, decoded, and in buffers
	// that grow.
	copiesOfResponse = 4

	// itemOfResponse is what an item of a response takes in addition to its content.
	itemOfResponse = 4 << 10

	// longEvent is the length of a line of a stream that counts, because it is in memory as a whole.
	longEvent = 64 << 10
)

// Receipt counts the bytes that a response keeps in memory while it arrives. Adapters report the content, and the body
// that CheckHTTP bounds reports lines of more than 64 KiB. Reads of that body fail once the response has kept more than
// 24 MiB, or more than the worker could reserve memory for.
type Receipt struct {
	grow    func(bytes int64) bool
	kept    atomic.Int64
	granted atomic.Int64
	refused atomic.Bool
}

type receiptKey struct{}

// WithReceipt returns a context for one call of a provider. If the response keeps more than 256 KiB, grow is called to
// reserve further bytes of memory. grow must not wait; it returns false if it cannot reserve them, and the call then
// fails. The caller of WithReceipt must release the reserved bytes after the call.
func WithReceipt(ctx context.Context, grow func(bytes int64) bool) context.Context {
	r := &Receipt{grow: grow}
	r.granted.Store(freeResponse)
	return context.WithValue(ctx, receiptKey{}, r)
}

// ReceiptFrom returns the receipt of a call, or nil, which counts nothing.
func ReceiptFrom(ctx context.Context) *Receipt {
	r, _ := ctx.Value(receiptKey{}).(*Receipt)
	return r
}

// Keep counts n bytes that the response keeps from now on. It must not be called concurrently.
func (r *Receipt) Keep(n int) {
	if r == nil || n == 0 {
		return
	}
	kept := r.kept.Add(int64(n))
	for granted := r.granted.Load(); granted < kept && kept <= longestResponse && !r.refused.Load(); granted = r.granted.Add(responseStep) {
		if !r.grow(responseStep * copiesOfResponse) {
			r.refused.Store(true)
		}
	}
}

// KeepItems counts n items of a response, such as calls of tools, apart from their content.
func (r *Receipt) KeepItems(n int) { r.Keep(n * itemOfResponse) }

// failure returns the error of a response that keeps too much, or nil.
func (r *Receipt) failure(provider string) error {
	switch {
	case r == nil:
		return nil
	case r.kept.Load() > longestResponse:
		return &Error{Class: InvalidRequest, Provider: provider, Message: fmt.Sprintf("the model's server sent more than %d MiB of content for one response: lower max_output_tokens, or check base_url", longestResponse>>20)}
	case r.refused.Load():
		return &Error{Class: Overloaded, Provider: provider, Message: fmt.Sprintf("the response has more than %d KiB, and the memory of the worker for answers is in use: try again later, or raise TURNPIKE_ANSWERS_MIB", freeResponse>>10)}
	}
	return nil
}
