package measure

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// stored is the size of the servers' data, in bytes: Redis in memory, the streams of NATS on disk.
type stored struct{ redis, streams float64 }

// stored returns the current size.
func (t *trial) stored(ctx context.Context) (s stored, err error) {
	if t.Redis != nil {
		pause(ctx, 1500*time.Millisecond) // Redis counts the buffers of its clients once a second
		memory, err := t.info(ctx, "memory", "used_memory", "mem_clients_normal")
		if err != nil {
			return s, err
		}
		s.redis = memory[0] - memory[1] // buffers vary
	}
	js, err := jetstream.New(t.Conn)
	if err != nil {
		return s, err
	}
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if info.Config.Name != floorStream {
			s.streams += float64(info.State.Bytes)
		}
	}
	return s, streams.Err()
}

// leaves records the data that one of n runs has left on the servers since an earlier measurement.
func (t *trial) leaves(ctx context.Context, name string, before stored) error {
	now, err := t.stored(ctx)
	t.figure(Figure{Name: name + ", in Redis", Value: (now.redis - before.redis) / float64(t.n), Unit: "B"})
	t.figure(Figure{Name: name + ", in streams", Value: (now.streams - before.streams) / float64(t.n), Unit: "B"})
	return err
}

// sent returns the number of bytes sent to Redis.
func (t *trial) sent(ctx context.Context) (float64, error) {
	v, err := t.info(ctx, "stats", "total_net_input_bytes")
	return v[0], err
}

// received returns the number of bytes that Redis has sent; 0 without Redis.
func (t *trial) received(ctx context.Context) (float64, error) {
	if t.Redis == nil {
		return 0, nil
	}
	v, err := t.info(ctx, "stats", "total_net_output_bytes")
	return v[0], err
}

// info reads values of a section of Redis' INFO.
func (t *trial) info(ctx context.Context, section string, names ...string) ([]float64, error) {
	values := make([]float64, len(names))
	text, err := t.Redis.Client.Info(ctx, section).Result()
	if err != nil {
		return values, fmt.Errorf("ask Redis: %w", err)
	}
	for i, name := range names {
		_, rest, found := strings.Cut("\n"+text, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r")
		if values[i], err = strconv.ParseFloat(value, 64); !found || err != nil {
			return values, fmt.Errorf("the INFO of Redis has no %s: measure with a Redis server that reports it", name)
		}
	}
	return values, nil
}
