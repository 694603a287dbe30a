// Package gemini calls models through Google's Gemini API. Requests always stream, and the SDK's
// own retries and continuations are off.
package gemini
