package worker

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"time"
)

// random is where everything random of a worker comes from, so that whoever gives the
// source knows what comes out.
type random struct{ source io.Reader }

func (r random) bytes() (b [16]byte) {
	if _, err := io.ReadFull(r.source, b[:]); err != nil {
		panic(fmt.Sprintf("read random bytes: %v", err)) // a token that is not random would be no fence
	}
	return b
}

// token returns 128 random bits for one claim.
func (r random) token() string {
	b := r.bytes()
	return hex.EncodeToString(b[:])
}

// upTo returns a time from 0 up to, but not including, d.
func (r random) upTo(d time.Duration) time.Duration {
	b := r.bytes()
	return time.Duration(binary.LittleEndian.Uint64(b[:]) % uint64(max(1, d))) //nolint:gosec // what is below d fits
}
