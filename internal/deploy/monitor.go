package deploy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/deploy/monitor"
	"github.com/turnpike-dev/turnpike/internal/restore"
)

const outageHint = "run `turnpike doctor`"

// monitor measures the store, counts dead letters, and reports connections that are lost and
// regained, until Close.
func (d *Deployment) monitor() error {
	m, err := monitor.NewMeter(d.cfg.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	store := d.Store
	ready := func(ctx context.Context) error {
		// A store that waits for a decision about its age can be reached.
		if err := store.Ready(ctx); !errors.Is(err, restore.ErrWaiting) {
			return err
		}
		return nil
	}
	d.Store, d.Bus = monitor.Measure(d.Store, m), monitor.Count(d.Bus, m)

	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		m.WatchStore(ctx, monitor.NewConnection("store", outageHint, m, d.cfg.Logger), ready)
	})
	if d.NATS != nil {
		watching.Go(func() {
			watchNATS(ctx, monitor.NewConnection("nats", outageHint, m, d.cfg.Logger), d.NATS)
		})
	}
	d.OnClose(func() {
		cancel()
		watching.Wait()
	})
	return nil
}

// errNoCause is the error of a lost connection for which the client has none.
var errNoCause = errors.New("the connection to NATS has ended, and the NATS client reports no cause: check that the NATS server runs and that the network reaches it")

// watchNATS reports the connection as c until ctx ends.
func watchNATS(ctx context.Context, c *monitor.Connection, nc *nats.Conn) {
	defer c.Close()
	changed := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED)
	defer nc.RemoveStatusListener(changed)
	for {
		// The status of now: the channel drops changes while it is full.
		switch nc.Status() {
		case nats.CONNECTED:
			c.Regained()
		case nats.RECONNECTING, nats.DISCONNECTED:
			err := nc.LastError()
			if err == nil {
				err = errNoCause
			}
			c.Lost(err)
		default: // it is being closed
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
