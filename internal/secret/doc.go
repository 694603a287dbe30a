// Package secret redacts: it removes the secrets that a call used from its answer. A server that
// repeats its input must not put a key into a history.
//
// A [Redactor] knows some secrets:
//
//	r := secret.New(apiKey)
//	text = r.Redact(text)
//
// [Redactor.Cut] is for streams, where a secret may come in two pieces.
//
// # Guarantees
//
//   - A secret is found plainly written, escaped for a URL, for JSON or for HTML, and in base64.
//   - JSON and URLs stay whole: [Redacted] needs no escaping in them.
//   - Secrets of less than four bytes are not looked for.
package secret
