package linear

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// asServer makes the test binary a NATS server, with this directory and address.
const asServer = "TURNPIKE_TEST_NATS_SERVER"

func TestMain(m *testing.M) {
	if dir, addr, ok := strings.Cut(os.Getenv(asServer), "|"); ok {
		if _, err := devserver.Start(devserver.Options{Dir: dir, Listen: addr}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	os.Exit(m.Run())
}

// natsProcess is a NATS server that can be killed and restarted.
type natsProcess struct {
	addr, dir string
	cmd       *exec.Cmd
}

func startNATS(t *testing.T) *natsProcess {
	t.Helper()
	port, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p := &natsProcess{addr: fmt.Sprintf("127.0.0.1:%d", port), dir: t.TempDir()}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *natsProcess) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), asServer+"="+p.dir+"|"+p.addr)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	said := make([]byte, 1000)
	n, err := out.Read(said)
	if err != nil || string(said[:n]) != "ready\n" {
		return fmt.Errorf("start NATS: %s %w", said[:n], err)
	}
	return nil
}

func (p *natsProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
