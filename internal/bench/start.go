package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// start measures how long `turnpike dev` and `turnpike demo` take to be ready, how large
// the program is, and what its processes need at the start.
func start(ctx context.Context, cfg Config, add func(Row)) error {
	tries := 5
	if cfg.Short {
		tries = 1
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "turnpike-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var fresh, again, demo []float64
	var dev process
	for i := range tries {
		data := filepath.Join(dir, fmt.Sprint("data-", i))
		for _, took := range []*[]float64{&fresh, &again} {
			if dev, err = startDev(ctx, self, data); err != nil {
				return err
			}
			*took = append(*took, dev.took.Seconds())
		}
		d, err := startDemo(ctx, self)
		if err != nil {
			return err
		}
		demo = append(demo, d.Seconds())
	}
	info, err := os.Stat(self)
	if err != nil {
		return err
	}
	times := fmt.Sprintf("median of %d", tries)
	add(Row{What: "turnpike dev is ready, a new data directory", Value: latency(fresh).P50, Unit: "s", Target: "< 1", Note: times})
	add(Row{What: "turnpike dev is ready, its data directory again", Value: latency(again).P50, Unit: "s", Target: "< 1", Note: times})
	add(Row{What: "turnpike demo is ready, three workers", Value: latency(demo).P50, Unit: "s", Target: "< 1", Note: times})
	add(Row{What: "the program turnpike", Value: mib(info.Size()), Unit: "MiB", Note: "as it was built"})
	resident := func(what string, p process) {
		add(Row{What: what + " at the start, resident", Value: mib(p.resident), Unit: "MiB", Note: fmt.Sprintf("%.1f MiB of its own; the rest is the program's file, which processes share", mib(p.own))})
	}
	resident("turnpike dev", dev)
	f, err := startFleet(ctx, cfg.Profile, 1, 1000)
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.define(ctx, agentName, turns(1, 0)); err != nil {
		return err
	}
	resident("a gateway", look(f.gateway))
	resident("a worker", look(f.workers[0]))
	return nil
}

// process is what a process took to be ready, and its memory in bytes then.
type process struct {
	took          time.Duration
	resident, own int64
}

func look(p *exec.Cmd) process {
	return process{resident: memory(p, "VmRSS"), own: memory(p, "RssAnon")}
}

func startDev(ctx context.Context, self, data string) (process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return process{}, err
	}
	addr := l.Addr().String()
	_ = l.Close()
	began := time.Now()
	cmd := exec.CommandContext(ctx, self, "dev", "--data-dir", data, "--addr", addr, "--log-level", "error")
	if err := cmd.Start(); err != nil {
		return process{}, err
	}
	defer kill(cmd)
	c := api.New("http://" + addr)
	if err := until(ctx, "turnpike dev is ready", func() (bool, error) { return c.Ready(ctx) == nil, nil }); err != nil {
		return process{}, err
	}
	took := time.Since(began)
	p := look(cmd)
	p.took = took
	return p, nil
}

// startDemo returns when the demo has submitted its run.
func startDemo(ctx context.Context, self string) (time.Duration, error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, self, "demo")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	// To its end, which removes what it has made.
	defer func() {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "run ") {
			return time.Since(began), nil
		}
	}
	return 0, fmt.Errorf("turnpike demo has not submitted its run")
}
