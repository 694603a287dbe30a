// Package natshook makes hooks of NATS services, in any language: a request on the
// hook's subject contains a hook.Request as JSON, the reply is a hook.Answer, or {"error":
// "text"} if the hook has failed. An empty object lets the run continue.
package natshook
