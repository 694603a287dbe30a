// Package random makes the random values of a worker from one source, so that a test that provides the
// source knows the values.
package random

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Source makes random values. It is safe for concurrent use if R is. Its methods panic if R returns an error.
type Source struct{ R io.Reader }

func (r Source) bytes() (b [16]byte) {
	if _, err := io.ReadFull(r.R, b[:]); err != nil {
		panic(fmt.Sprintf("read random bytes: %v", err)) // a token that is not random would be no fence
	}
	return b
}

// Token returns 96 random bits as 16 characters of URL-safe base64, for one claim, which has to differ from
// other claims of its run.
func (r Source) Token() string {
	b := r.bytes()
	return base64.RawURLEncoding.EncodeToString(b[:12])
}

// UpTo returns a duration from 0 up to, but not including, d; 0 if d is not positive.
func (r Source) UpTo(d time.Duration) time.Duration {
	b := r.bytes()
	return time.Duration(binary.LittleEndian.Uint64(b[:]) % uint64(max(1, d))) //nolint:gosec // what is below d fits
}
