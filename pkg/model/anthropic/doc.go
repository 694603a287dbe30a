// Package anthropic calls models through Anthropic's messages API. Requests always
// stream, and the SDK makes no retries of its own.
package anthropic
