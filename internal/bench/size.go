package bench

import (
	"context"
	"fmt"

	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// size measures what runs take in Redis and in the streams: runs that wait for a person
// after one turn, and runs that have ended after ten. What the first thousand take says
// what more of them will, if nothing grows but with their number.
func size(ctx context.Context, cfg Config, add func(Row)) error {
	steps := []int{1000, cfg.Size}
	if cfg.Short {
		steps = []int{300, 1000}
	}
	if steps[0] >= steps[1] {
		return fmt.Errorf("size needs more than %d runs", steps[0])
	}
	const waits = `
model: {provider: scripted, responses: [{tool_calls: [{name: ask, arguments: {question: "well?"}}]}, {text: done}]}
tools: [{name: ask, kind: human}]`
	if err := sizeOf(ctx, cfg, waits, state.Waiting, "waits after a turn", steps, add); err != nil {
		return err
	}
	return sizeOf(ctx, cfg, turns(10, 0), state.Completed, "has ended after ten turns", steps[:1], add)
}

func sizeOf(ctx context.Context, cfg Config, definition string, end state.Status, name string, steps []int, add func(Row)) error {
	f, err := startFleet(ctx, cfg.Profile, 1, 1000)
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.define(ctx, agentName, definition); err != nil {
		return err
	}
	// Scripts, streams and consumers are there before the first that counts.
	const warm = 200
	if _, err := f.submitMany(ctx, request(agentName), warm, 0); err != nil {
		return err
	}
	if err := f.reach(ctx, end, warm); err != nil {
		return err
	}
	base, err := f.stored(ctx)
	if err != nil {
		return err
	}
	have := 0
	var first stored
	for i, n := range steps {
		if _, err := f.submitMany(ctx, request(agentName), n-have, 0); err != nil {
			return err
		}
		have = n
		if err := f.reach(ctx, end, warm+n); err != nil {
			return err
		}
		now, err := f.stored(ctx)
		if err != nil {
			return err
		}
		each := stored{(now.redis - base.redis) / float64(n), (now.streams - base.streams) / float64(n)}
		if i == 0 {
			first = each
		}
		note := func(each, first float64) string {
			if i == 0 || first == 0 {
				return ""
			}
			return fmt.Sprintf("%.3f of what %d predict", each/first, steps[0])
		}
		add(Row{What: fmt.Sprintf("%d runs: one that %s, in Redis", n, name), Value: each.redis, Unit: "B", Note: note(each.redis, first.redis)})
		add(Row{What: fmt.Sprintf("%d runs: one that %s, in the streams", n, name), Value: each.streams, Unit: "B", Note: note(each.streams, first.streams)})
	}
	return nil
}

// stored is how many bytes of memory Redis uses, and of disk the streams.
type stored struct{ redis, streams float64 }

func (f *fleet) stored(ctx context.Context) (s stored, err error) {
	if err := pause(ctx, 1500*time.Millisecond); err != nil { // Redis counts the buffers of its clients once a second
		return s, err
	}
	info, err := f.rdb.Info(ctx, "memory").Result()
	if err != nil {
		return s, fmt.Errorf("ask Redis: %w", err)
	}
	for line := range strings.SplitSeq(info, "\r\n") {
		name, text, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseFloat(text, 64)
		switch name {
		case "used_memory":
			s.redis += n
		case "mem_clients_normal": // their buffers come and go
			s.redis -= n
		}
	}
	streams := f.js.ListStreams(ctx)
	for stream := range streams.Info() {
		s.streams += float64(stream.State.Bytes)
	}
	return s, streams.Err()
}
