// Package openai calls models through OpenAI's Responses API, and through chat completions, the format of most
// compatible servers. Requests always stream, OpenAI does not store them, and the SDK's own retries are off.
package openai
