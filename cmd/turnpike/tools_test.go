package main

import (
	"strings"
	"testing"
)

// A command that cannot log in prints the address, without the credentials.
func TestToolsRedactCredentials(t *testing.T) {
	t.Parallel()
	c := toolsLsCmd{toolServer{NATSURL: "nats://me:hunter22@127.0.0.1:1", Prefix: "turnpike"}}
	err := c.Run(&env{ctx: t.Context()})
	if err == nil || strings.Contains(err.Error(), "hunter22") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("tools ls = %v", err)
	}
}
