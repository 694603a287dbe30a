// Package openai calls models through OpenAI's Responses API, and through chat
// completions, the format that most compatible servers speak. Requests always
// stream, nothing of them is stored at OpenAI, and the SDK makes no retries of its
// own.
package openai
