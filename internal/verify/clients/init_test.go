//go:build clients

package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// `turnpike init` writes an agent and a tool that run with `turnpike dev`.
func TestInit(t *testing.T) {
	t.Parallel()
	for _, l := range clients() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if err := l.ready(); err != nil {
				t.Fatal(err)
			}
			bin, err := turnpike()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			port, err := devserver.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			command := filepath.Join(bin, "turnpike")
			env := []string{fmt.Sprintf("TURNPIKE_URL=http://127.0.0.1:%d", port), "TURNPIKE_NATS_URL=", "TURNPIKE_DATA_DIR=" + filepath.Join(dir, ".turnpike")}
			turnpike := func(args ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), command, args...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if out, err := turnpike("init", "--lang", strings.ToLower(l.name)); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			tool := []string{"python3", "tools/convert.py"}
			if l.name == "TypeScript" {
				tool = []string{"npm", "start"}
				install := exec.CommandContext(t.Context(), "npm", "install", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
				install.Dir = dir
				if out, err := install.CombinedOutput(); err != nil {
					t.Fatalf("npm install: %v: %s", err, out)
				}
			}
			in := func(command []string) []string { return append([]string{"env", "-C", dir}, command...) }
			dev := run(t, l, in([]string{command, "dev", "--addr", fmt.Sprintf("127.0.0.1:%d", port), "--agents", "agents"}), env...)
			dev.until(t, "converter")
			run(t, l, in(tool), env...).until(t, "answers calls on")
			out, err := turnpike("run", "converter", "How far is 100 km in miles?")
			if err != nil || !strings.Contains(out, "62.13711922") || !strings.Contains(out, "100 km are 62.1 miles.") {
				t.Errorf("run: %v: %s", err, out)
			}
		})
	}
}
