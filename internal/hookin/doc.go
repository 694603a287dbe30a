// Package hookin checks the signatures of webhooks that other systems send, and reads their bodies.
//
// A [Scheme] is the way in which a sender signs. Verify compares in constant time and refuses timestamps
// that are more than five minutes off, where the scheme has one. Parse reads the event and the id under
// which the sender delivers it again. The package makes no request and keeps no state: the caller makes
// one run of one id.
package hookin
