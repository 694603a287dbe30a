package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Whoever may save an agent does not have programs started by `turnpike dev`, unless its flag
// says so.
func TestDevStartsNoPrograms(t *testing.T) {
	t.Parallel()
	for flag, starts := range map[string]bool{"": false, "--allow-commands": true} {
		t.Run("flag "+flag, func(t *testing.T) {
			t.Parallel()
			addr, mark := freeAddr(t), filepath.Join(t.TempDir(), "started")
			args := []string{"dev", "--data-dir", t.TempDir(), "--addr", addr}
			if flag != "" {
				args = append(args, flag)
			}
			spawn(t, "turnpike", nil, args...)
			c := cli{t, "http://" + addr}
			eventually(t, "turnpike dev is ready", func() error {
				if out, code := c.run("ps"); code != 0 {
					return errors.New(out)
				}
				return nil
			})
			spy := file(t, "spy.yaml", fmt.Sprintf("name: spy\nmodel: {provider: scripted, responses: [{text: done}]}\ntools: [{kind: mcp, command: [sh, -c, %q]}]\n", "echo > "+mark))
			out, _ := c.run("run", spy, "hi")
			if _, err := os.Stat(mark); (err == nil) != starts {
				t.Errorf("the program was started: %t, want %t:\n%s", err == nil, starts, out)
			}
		})
	}
}
