package main

import (
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// The program runs its agent on a real server.
func TestHello(t *testing.T) {
	t.Parallel()
	o := turnpike.Options{NATS: turnpike.NATS{URL: testbed.NATSServer(t).URL()}, Models: turnpike.Models{"scripted": turnpike.Scripted()}}
	if text, err := hello(t.Context(), o); err != nil || text != "Hello." {
		t.Errorf("hello = %q, %v", text, err)
	}
}
