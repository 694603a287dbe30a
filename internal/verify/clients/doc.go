// Package clients tests the clients in Python and TypeScript from outside, and pkg/toolkit with the
// same cases: `make clients`. The tests have the build tag clients, since they need more than Go.
package clients
