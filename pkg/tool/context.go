package tool

import "context"

type callKey struct{}

// WithCall returns a context that carries a call, for Go functions that a worker calls.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// CallFrom returns the call that ctx belongs to, and false outside a tool call.
func CallFrom(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}
