// Package gemini calls models through Google's Gemini API. Requests always stream,
// and the SDK makes no retries and no continuations of its own.
package gemini
