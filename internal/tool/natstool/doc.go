// Package natstool makes tools of NATS micro services, in any language.
//
// A tool refund is a service that answers on turnpike.tool.refund, for the prefix
// turnpike:
//
//	request  {"call_id", "run_id", "arguments", "idempotency_key", "deadline"}
//	reply    {"content": "text, or any JSON"}  or  {"error": "text"}  or  {"pending": true}
//
// A reply may also have images: {"content": …, "images": [{"media_type", "data" in
// base64}, {"url"}]}, for models that accept them, see tool.CheckImages.
//
// A tool that is declared async may reply that it is pending: it has accepted the call,
// and sends the result later, as the signal tool_results to the run.
//
// The header traceparent carries the W3C trace context of the call, if it has one.
//
// Errors in the headers of NATS micro services also count as errors. A message on <reply
// subject>.cancel tells the service that the caller has stopped waiting; a service may
// ignore it. It is repeated a few times, at heartbeats of the service or after the time of
// one, because a service may receive it before it has subscribed to it.
//
// Request and reply are delivered at most once: a call without a reply may or may not have
// been executed. So the request asks for heartbeats (toolkit.HeartbeatHeader). A service
// that sent one and then stops counts as dead, and the call does not wait for its
// deadline. It is repeated, with the same idempotency key, only if the tool is idempotent
// (I4).
package natstool
