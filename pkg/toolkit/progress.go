package toolkit

import "context"

// progressKey is the key of the function in a call's context that reports its progress.
type progressKey struct{}

// Progress reports the progress of the call that ctx belongs to: readers of the run's events receive the first 1,000
// bytes of text. Turnpike does not store it. Progress does nothing outside a call, after its handler has returned, or
// if the caller has not requested heartbeats. It is safe for concurrent use.
func Progress(ctx context.Context, text string) {
	if report, ok := ctx.Value(progressKey{}).(func(string)); ok {
		report(text)
	}
}
