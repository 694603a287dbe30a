package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// readers opens event streams of live runs and looks how soon the first event is
// there, and how soon later ones are.
func readers(ctx context.Context, cfg Config, add func(Row)) error {
	n, runs, perSecond, watch := 1000, 50, 250, 5*time.Second
	if cfg.Short {
		n, runs, perSecond, watch = 50, 5, 100, time.Second
	}
	f, err := startFleet(ctx, cfg.Profile, 1, 1000)
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.define(ctx, agentName, turns(100, time.Second)); err != nil {
		return err
	}
	ids, err := f.submitMany(ctx, request(agentName), runs, 0)
	if err != nil {
		return err
	}
	if err := until(ctx, "the runs are live", func() (bool, error) {
		calls, err := f.calls(ctx)
		return err == nil && calls[0] >= runs, err
	}); err != nil {
		return err
	}
	var all ear
	group, groupCtx := errgroup.WithContext(ctx)
	reading, stop := context.WithCancel(groupCtx)
	defer stop()
	http1 := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	before, began := f.used(), time.Now()
	for i := range n {
		if pause(groupCtx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(perSecond)))) != nil {
			break // a reader has failed
		}
		group.Go(func() error { return all.listen(reading, http1, f.url+"/v1/runs/"+ids[i%len(ids)]+"/events") })
	}
	if err := until(groupCtx, "every reader has its first event", func() (bool, error) { return all.opened() >= n, nil }); err != nil {
		stop()
		return errors.Join(err, group.Wait())
	}
	if err := pause(groupCtx, watch); err != nil {
		stop()
		return errors.Join(err, group.Wait())
	}
	used, took := f.used(), time.Since(began)
	stop()
	if err := group.Wait(); err != nil {
		return err
	}
	frames := len(all.later)
	add(Row{What: fmt.Sprintf("%d readers of %d live runs: first event, p50", n, runs), Value: latency(all.first).P50, Unit: "ms"})
	add(Row{What: fmt.Sprintf("%d readers of %d live runs: first event, p99", n, runs), Value: latency(all.first).P99, Unit: "ms", Target: "≤ 50", Note: fmt.Sprintf("%d readers come a second", perSecond)})
	if frames == 0 {
		return errors.New("no reader got an event of a later turn")
	}
	add(Row{
		What: "later events, p50 from their time to the reader", Value: latency(all.later).P50, Unit: "ms",
		Note: fmt.Sprintf("%d of them; the gateway took %.2f ms of CPU each", frames, ms(used[3]-before[3])/float64(frames)),
	})
	add(Row{What: "later events, p99 from their time to the reader", Value: latency(all.later).P99, Unit: "ms", Note: fmt.Sprintf("%.0f/s", float64(frames)/took.Seconds())})
	add(Row{What: "gateway with all readers, most resident", Value: mib(memory(f.gateway, "VmHWM")), Unit: "MiB"})
	return nil
}

// ear is what all readers heard.
type ear struct {
	mu    sync.Mutex
	first []float64 // ms from the request to the first event
	later []float64 // ms from the time of an event that came after the reader
}

func (e *ear) opened() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.first)
}

// listen reads a stream until ctx ends.
func (e *ear) listen(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	began := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read events: %s", resp.Status)
	}
	frames := sse.NewReader(resp.Body)
	for first := true; ; first = false {
		frame, err := frames.Next()
		if ctx.Err() != nil {
			return nil // the measurement is over
		}
		if err != nil {
			return err
		}
		now := time.Now()
		event, err := api.DecodeEvent(frame.Data)
		if err != nil {
			return err
		}
		e.mu.Lock()
		if first {
			e.first = append(e.first, ms(now.Sub(began)))
		} else if event.At.After(began) {
			e.later = append(e.later, ms(now.Sub(event.At.Time)))
		}
		e.mu.Unlock()
	}
}
