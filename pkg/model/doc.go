// Package model is the contract with language models: one neutral request, one neutral response,
// one table of error classes. Only the adapters below this package know the providers' formats.
//
//   - [Provider] makes one streaming call: [Request], [Delta], [Response]. Adapters are in packages
//     anthropic, openai, gemini and scripted; modeltest.Exercise holds one of your own to the rules.
//   - [Error] has a [Class], which says what may be done: try again, compact, fall back, give up.
//   - [Retry], [Breakers] and [RateLimits] are what workers put around calls; [Prices] count costs.
//
// A call of a provider:
//
//	resp, err := provider.Generate(ctx, model.Request{
//		Run: run, Model: "some-model", Messages: []state.Message{state.UserText("Hi")}, APIKey: key,
//	}, func(d model.Delta) { show(d.Text) })
//
// # Guarantees
//
//   - Half a tool call is never returned, whenever the stream ends.
//   - An error is an *Error or wraps one; its text has no key.
//   - A Provider may be called from any goroutine, and makes no retries that [Retry] does not know of.
package model
