package natsstore

import (
	"runtime"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/internal/state/wire"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A message that decodes can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	full := change{"op", record.Record{Header: state.State{Agent: "a", Format: 1}, Status: state.Queued, LogLen: 2}, []state.Entry{{Type: state.EntryTool, Attempt: 1}}}
	b, err := full.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decode("run_1", b)
		if err != nil {
			return
		}
		again, err := c.encode()
		if err != nil {
			t.Fatalf("encode of what %q decodes to: %v", b, err)
		}
		if _, err := decode("run_1", again); err != nil {
			t.Fatalf("decode(%q): %v", again, err)
		}
	})
}

// Decoding any message takes memory in proportion to its length.
func TestDecodeAllocates(t *testing.T) { //nolint:paralleltest // it counts allocations
	const n = 20_000
	message := func(write func(p *wire.Packer)) string {
		var p wire.Packer
		write(&p)
		return string(p.B)
	}
	empty := func(fields ...int) string { // n empty values of the last field, within the others
		inner := message(func(p *wire.Packer) {
			for range n {
				p.Text(fields[len(fields)-1], "")
			}
		})
		for i := len(fields) - 2; i >= 0; i-- {
			text := inner
			inner = message(func(p *wire.Packer) { p.Text(fields[i], text) })
		}
		return inner
	}
	for name, data := range map[string]string{
		"entries":         empty(4),
		"messages":        empty(4, 14),
		"parts":           empty(4, 12, 10),
		"requesters":      empty(4, 18),
		"results":         empty(3, 34),
		"awaited names":   empty(3, 27),
		"a long length":   "\x22\xff\xff\xff\xff\x0f",
		"nested messages": message(func(p *wire.Packer) { p.Text(4, strings.Repeat("\x62\x7f", n)) }),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = decode("run_1", []byte(data))
		runtime.ReadMemStats(&after)
		// An empty value of two bytes becomes an entry of some 600 bytes, in a list that grows.
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(1000*len(data)+1<<16); got > most {
			t.Errorf("%d bytes of %s allocate %d bytes, want %d at most", len(data), name, got, most)
		}
	}
}
