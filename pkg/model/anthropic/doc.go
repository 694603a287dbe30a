// Package anthropic calls models through Anthropic's messages API. Requests always stream, and the
// SDK's own retries are off.
package anthropic
