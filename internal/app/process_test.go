package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// keyLines receives the lines of a log about the keys of the bus.
type keyLines chan string

func (l keyLines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "bus keys") {
		l <- string(line)
	}
	return len(line), nil
}

// The keys of the bus are read at each signal, also after a file that was not valid, until the process ends.
func TestBusKeysAreReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus.keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("a", 43))
	lines := make(keyLines, 1)
	d, err := deploy.Open(t.Context(), deploy.Config{
		NATSURL: testbed.NATSWith(t, func(*server.Options) {}).ClientURL(), Store: memstore.New(memstore.Config{}), BusKeys: credential.Value{File: path}, Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, stop := context.WithCancel(t.Context())
	reload, ended := make(chan os.Signal), make(chan struct{})
	go func() {
		defer close(ended)
		reloadKeys(ctx, d, path, reload)
	}()
	for _, c := range []struct{ text, want string }{
		{"short", "new bus keys not loaded"}, {strings.Repeat("b", 43), "bus keys loaded"}, {"unsigned", "new bus keys not loaded"}, {strings.Repeat("c", 43), "bus keys loaded"},
	} {
		write(c.text)
		select {
		case reload <- syscall.SIGHUP:
		case <-ended:
			t.Fatal("no signal is read after a file that was not valid")
		}
		if line := <-lines; !strings.Contains(line, c.want) || !strings.Contains(line, path) {
			t.Errorf("the keys %q: %s, want %q", c.text, line, c.want)
		}
	}
	stop()
	<-ended
}

// A gateway serves its metrics at the operators' address if it has one, and then no longer at that of the API.
func TestWhereMetricsAre(t *testing.T) {
	t.Parallel()
	nats := testbed.NATSWith(t, func(*server.Options) {}).ClientURL()
	free := func() string {
		port, err := devserver.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	status := func(addr, path string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Body.Close()
	}
	for name, with := range map[string]bool{"with": true, "without": false} {
		api, operators := free(), free()
		args := []string{"--nats-url=" + nats, "--addr=" + api, "--log-level=error", "--drain=0s"}
		want := map[string]int{api: http.StatusOK}
		if with {
			args = append(args, "--admin-addr="+operators)
			want = map[string]int{api: http.StatusNotFound, operators: http.StatusOK}
		}
		var cfg GatewayProcess
		k, err := kong.New(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(args); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ServeGateway(ctx, cfg) }()
		for addr, code := range want {
			testbed.Eventually(t, addr+" answers", func() error {
				select {
				case err := <-ended:
					t.Fatalf("ServeGateway = %v", err)
				default:
				}
				_, err := status(addr, "/healthz")
				return err
			})
			if got, err := status(addr, "/metrics"); got != code || err != nil {
				t.Errorf("%s an operators' address: metrics at %s (API: %s): %d, %v; want %d", name, addr, api, got, err, code)
			}
		}
		stop()
		<-ended // with an error if it has not opened its last stream yet
	}
}
