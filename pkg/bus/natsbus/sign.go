package natsbus

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Keys sign messages between processes that the receiver does not verify against the
// store: live events, heartbeats, aborts that the sender has already recorded in the
// store, and the event feed. The zero value signs nothing and accepts everything.
type Keys struct {
	secrets  []string
	unsigned bool
}

const (
	// minKey is the minimum length of a key in bytes.
	minKey = 16

	// wordUnsigned is listed among the keys while some processes have none yet.
	wordUnsigned = "unsigned"
)

// ParseKeys parses up to four keys of 16 bytes or more, separated by commas or lines. The process signs with
// the first key, and accepts signatures of all of them. The word "unsigned" after the first key makes it also
// accept unsigned messages. An empty or blank text gives the zero Keys.
func ParseKeys(text string) (Keys, error) {
	var k Keys
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' }) {
		switch word = strings.TrimSpace(word); {
		case word == "":
		case word == wordUnsigned && len(k.secrets) > 0:
			k.unsigned = true
		case word == wordUnsigned:
			return Keys{}, errors.New("bus keys (TURNPIKE_BUS_KEYS or TURNPIKE_BUS_KEYS_FILE; in Go, NATS.Keys): the word unsigned has no key before it: write the key first, then unsigned")
		case len(word) < minKey:
			return Keys{}, fmt.Errorf("bus keys (TURNPIKE_BUS_KEYS or TURNPIKE_BUS_KEYS_FILE; in Go, NATS.Keys): a key has %d bytes, the minimum is %d: generate one with `openssl rand -hex 32`", len(word), minKey)
		default:
			k.secrets = append(k.secrets, word)
		}
	}
	if len(k.secrets) > maxKeys {
		return Keys{}, fmt.Errorf("bus keys (TURNPIKE_BUS_KEYS or TURNPIKE_BUS_KEYS_FILE; in Go, NATS.Keys): there are %d keys, at most %d are allowed: keep the new key and the previous one", len(k.secrets), maxKeys)
	}
	if strings.TrimSpace(text) != "" && len(k.secrets) == 0 {
		return Keys{}, errors.New("bus keys (TURNPIKE_BUS_KEYS or TURNPIKE_BUS_KEYS_FILE; in Go, NATS.Keys): the value has separators but no key: generate one with `openssl rand -hex 32`")
	}
	return k, nil
}

// maxKeys bounds the work that a forged message causes.
const maxKeys = 4

// headerMAC has the signature of a message: its sender, its number, and the code.
const headerMAC = "Turnpike-MAC"

// Senders that are not processes: their messages are stored, and may be read late.
const (
	senderAborts = "abort"
	senderFeed   = "feed"
)

// signatureAge is the maximum age of a message that is not stored: an older one is a replay, or a
// clock is wrong.
const signatureAge = time.Minute

// signer signs and verifies. A nil signer does neither.
type signer struct {
	macs     []*sync.Pool // of hash.Hash, for each key
	unsigned bool
	sender   string
	number   atomic.Int64
}

func newSigner(k Keys) *signer {
	if len(k.secrets) == 0 {
		return nil
	}
	s := &signer{unsigned: k.unsigned, sender: rand.Text()[:10]}
	for _, secret := range k.secrets {
		s.macs = append(s.macs, &sync.Pool{New: func() any { return hmac.New(sha256.New, []byte(secret)) }})
	}
	return s
}

// SetKeys makes the bus sign and verify with k from now on, and no longer with the earlier keys. With the zero Keys it
// signs nothing and accepts everything. SetKeys is safe for concurrent use.
func (b *Bus) SetKeys(k Keys) { b.signer.Store(newSigner(k)) }

// next returns a number that is higher than all before, and encodes the current time.
func (s *signer) next() int64 {
	for {
		last := s.number.Load()
		n := max(last+1, time.Now().UnixNano())
		if s.number.CompareAndSwap(last, n) {
			return n
		}
	}
}

// code returns the code of a message under the key at i.
func (s *signer) code(i int, sender string, number int64, subject string, data []byte) []byte {
	m, _ := s.macs[i].Get().(hash.Hash)
	defer s.macs[i].Put(m)
	m.Reset()
	head := make([]byte, 0, 128)
	head = strconv.AppendInt(append(append(append(append(head, sender...), 0), subject...), 0), number, 10)
	m.Write(append(head, 0)) // a subject has no zeros
	m.Write(data)
	return m.Sum(nil)
}

func (s *signer) sign(sender string, number int64, subject string, data []byte) string {
	text := make([]byte, 0, 80)
	text = strconv.AppendInt(append(append(text, sender...), '.'), number, 36)
	return string(base64.RawURLEncoding.AppendEncode(append(text, '.'), s.code(0, sender, number, subject, data)))
}

// signed reports whether a message has a valid signature, and its sender.
func (s *signer) signed(m *nats.Msg) (sender string, number int64, ok bool) {
	sender, rest, _ := strings.Cut(m.Header.Get(headerMAC), ".")
	count, text, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseInt(count, 36, 64)
	code, codeErr := base64.RawURLEncoding.DecodeString(text)
	if err != nil || codeErr != nil {
		return "", 0, false
	}
	for i := range s.macs {
		if hmac.Equal(code, s.code(i, sender, number, m.Subject, m.Data)) {
			return sender, number, true
		}
	}
	return "", 0, false
}

// stored reports whether to accept a message that may be read late: its signature must
// be of this kind of message, and have this number unless number is negative. Without
// keys it accepts every message, and while unsigned messages are allowed, each of those.
func (s *signer) stored(m *nats.Msg, kind string, number int64) bool {
	if s == nil || s.unsigned && m.Header.Get(headerMAC) == "" {
		return true
	}
	sender, n, ok := s.signed(m)
	return ok && sender == kind && (number < 0 || n == number)
}

// publishSigned sends a message that is not stored, signed if there are keys.
func (b *Bus) publishSigned(subject string, data []byte) error {
	s := b.signer.Load()
	if s == nil {
		return b.nc.Publish(subject, data)
	}
	return b.nc.PublishMsg(&nats.Msg{Subject: subject, Data: data, Header: nats.Header{headerMAC: {s.sign(s.sender, s.next(), subject, data)}}})
}

// header returns the header of a message that is stored, as arguments of newMsg.
func (s *signer) header(kind string, number int64, subject string, data []byte, header ...string) []string {
	if s == nil {
		return header
	}
	return append(header, headerMAC, s.sign(kind, number, subject, data))
}

// hearing verifies messages that are not stored. It accepts a message with a valid signature if the sender sent it
// after those that hearing has accepted from that sender, and if the time in it differs from the own clock by at most
// signatureAge. While unsigned messages are allowed, hearing also accepts every message without a signature. Without
// keys it accepts all messages. It is for one goroutine.
type hearing struct {
	signer *atomic.Pointer[signer]
	last   map[string]int64 // number of the latest message, by sender
}

func (b *Bus) hearing() *hearing { return &hearing{signer: &b.signer} }

func (h *hearing) believe(m *nats.Msg) bool {
	s := h.signer.Load()
	if s == nil || s.unsigned && m.Header.Get(headerMAC) == "" {
		return true
	}
	sender, number, ok := s.signed(m)
	if !ok || time.Since(time.Unix(0, number)).Abs() > signatureAge || number <= h.last[sender] {
		return false
	}
	if h.last == nil {
		h.last = map[string]int64{}
	}
	if _, known := h.last[sender]; !known {
		for old, n := range h.last {
			if time.Since(time.Unix(0, n)) > 2*signatureAge {
				delete(h.last, old) // all its messages are too old by now
			}
		}
	}
	h.last[sender] = number
	return true
}

// checkKeys reports which keys sign messages.
func (b *Bus) checkKeys() state.Finding {
	f, s := state.Finding{Name: "nats: signatures", OK: true}, b.signer.Load()
	switch {
	case s == nil:
		f.Detail = "off: any NATS client that may publish below " + b.cfg.Prefix + ". can forge live events and heartbeats; to sign them, set TURNPIKE_BUS_KEYS"
	case s.unsigned:
		f.OK, f.Detail = false, "live events and heartbeats are signed, but unsigned ones are accepted too"
		f.Remedy = "remove the word unsigned from TURNPIKE_BUS_KEYS when all gateways and workers have a key"
	default:
		f.Detail = fmt.Sprintf("live events and heartbeats, keys: %d", len(s.macs))
	}
	return f
}

// applied reports whether an abort carries a trusted mark that the store already has it.
func (b *Bus) applied(m *nats.Msg) bool {
	return m.Header.Get(bus.HeaderApplied) != "" && b.signer.Load().stored(m, senderAborts, -1)
}
