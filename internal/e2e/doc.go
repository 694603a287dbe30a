// Package e2e holds the whole-system tests: real gateway, worker and mock-model
// processes against real NATS and Redis servers, driven through the public API.
package e2e
