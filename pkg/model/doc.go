// Package model is the contract with language models: one neutral request, one neutral response,
// one table of error classes. Only the adapters below this package know the providers' formats.
//
//   - [Provider] makes one streaming call: [Request], [Delta], [Response]. Adapters are in packages
//     anthropic, openai, gemini and scripted; turnpiketest.Provider tests one of your own.
//   - [Error] has a [Class], which determines the remedy: retry, compact, fall back, give up.
//   - Workers wrap calls in [Retry], [Breakers] and [RateLimits]; [Prices] compute costs.
//
// A call of a provider:
//
//	resp, err := provider.Generate(ctx, model.Request{
//		Run: run, Model: "some-model", Messages: []state.Message{state.UserText("Hi")}, APIKey: key,
//	}, func(d model.Delta) { show(d.Text) })
//
// # Guarantees
//
//   - A partial tool call is never returned, whenever the stream ends.
//   - An error is an *Error or wraps one; its text has no key.
//   - A Provider is safe for concurrent use, and makes no retries except through [Retry].
package model
