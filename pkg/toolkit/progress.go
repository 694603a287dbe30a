package toolkit

import "context"

// progressKey is the key of the function in a call's context that reports its progress.
type progressKey struct{}

// Progress reports the progress of the call that ctx belongs to: current readers of the run's events receive the first
// 1,000 bytes of text. Reports may be lost: workers forward at most one every 200 ms for each call and drop the others,
// so each text must make sense on its own. Turnpike does not store it. Progress does nothing outside a call, after its
// handler has returned, or if the caller has not requested heartbeats. It is safe for concurrent use.
func Progress(ctx context.Context, text string) {
	if report, ok := ctx.Value(progressKey{}).(func(string)); ok {
		report(text)
	}
}
