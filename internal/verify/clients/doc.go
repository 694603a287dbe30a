// Package clients tests the clients in Python and TypeScript from outside, and pkg/toolkit with the same cases:
// `make clients`. It also checks webhooks, in both directions, with the libraries of their senders and
// receivers. The tests have the build tag clients, since they need more than Go.
package clients
