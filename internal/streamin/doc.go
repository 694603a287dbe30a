// Package streamin reads JetStream streams of users, for triggers.
//
// A trigger has one durable consumer, which all gateways share. Its name has the time at which the stream
// was created: a stream that is deleted and created again gets another consumer, and its messages other ids,
// also while a gateway still holds messages of the first one. The consumer delivers headers only. A gateway
// reads a body when it works on the message, so that its memory does not depend on how much it has fetched.
package streamin
