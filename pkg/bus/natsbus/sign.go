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

// Keys sign what processes of a deployment tell each other and nobody looks up in the store:
// live events, heartbeats, aborts that are applied already, and the event feed. The zero value
// signs nothing and believes everything.
type Keys struct {
	secrets  []string
	unsigned bool
}

const (
	// minKey is how many bytes a key has at least.
	minKey = 16

	// wordUnsigned stands among keys while some processes have none yet.
	wordUnsigned = "unsigned"
)

// ParseKeys reads keys that are separated by commas or lines. The first one signs, and what any of
// them has signed is believed; the word "unsigned" behind it has what is not signed believed,
// too.
func ParseKeys(text string) (Keys, error) {
	var k Keys
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' }) {
		switch word = strings.TrimSpace(word); {
		case word == "":
		case word == wordUnsigned && len(k.secrets) > 0:
			k.unsigned = true
		case len(word) < minKey:
			return Keys{}, fmt.Errorf("keys of the bus: one of them has %d bytes, want at least %d: `openssl rand -hex 32` makes one", len(word), minKey)
		default:
			k.secrets = append(k.secrets, word)
		}
	}
	if len(k.secrets) > maxKeys {
		return Keys{}, fmt.Errorf("keys of the bus: there are %d, at most %d are of use: a new one and the one before", len(k.secrets), maxKeys)
	}
	if strings.TrimSpace(text) != "" && len(k.secrets) == 0 {
		return Keys{}, errors.New("keys of the bus: there is none before the word unsigned")
	}
	return k, nil
}

// maxKeys bounds the work that a forged message makes.
const maxKeys = 4

// headerMAC has the signature of a message: who sent it, its number there, and the code.
const headerMAC = "Turnpike-MAC"

// senders that are no processes: what they sign is stored, and may be read late.
const (
	senderAborts = "abort"
	senderFeed   = "feed"
)

// signatureAge is how old a message may be that is not stored: a later one is repeated by
// somebody, or a clock is wrong.
const signatureAge = time.Minute

// signer signs and checks. A nil signer does neither.
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

// SetKeys signs with other keys from now on, and believes what they have signed.
func (b *Bus) SetKeys(k Keys) { b.signer.Store(newSigner(k)) }

// next returns a number that is higher than any before, and tells when it was made.
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

// signed reports whether a message has the signature of somebody with a key, and who that is.
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

// stored reports whether a message that may be read late is believed: with a signature of this
// kind of message, and the number, if it is not less than 0.
func (s *signer) stored(m *nats.Msg, kind string, number int64) bool {
	if s == nil || s.unsigned && m.Header.Get(headerMAC) == "" {
		return true
	}
	sender, n, ok := s.signed(m)
	return ok && sender == kind && (number < 0 || n == number)
}

// publishSigned sends a message that is not stored, with a signature if there are keys.
func (b *Bus) publishSigned(subject string, data []byte) error {
	s := b.signer.Load()
	if s == nil {
		return b.nc.Publish(subject, data)
	}
	return b.nc.PublishMsg(&nats.Msg{Subject: subject, Data: data, Header: nats.Header{headerMAC: {s.sign(s.sender, s.next(), subject, data)}}})
}

// header returns the header of a message that is stored, as newMsg takes it.
func (s *signer) header(kind string, number int64, subject string, data []byte, header ...string) []string {
	if s == nil {
		return header
	}
	return append(header, headerMAC, s.sign(kind, number, subject, data))
}

// hearing believes messages that are not stored: each once, in the order in which they were
// sent. It is for one goroutine.
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
				delete(h.last, old) // what it has sent is too old by now
			}
		}
	}
	h.last[sender] = number
	return true
}

// checkKeys says what is signed.
func (b *Bus) checkKeys() state.Finding {
	f, s := state.Finding{Name: "nats: signatures", OK: true}, b.signer.Load()
	switch {
	case s == nil:
		f.Detail = "none: whoever may publish below " + b.cfg.Prefix + ". can forge live events and heartbeats; TURNPIKE_BUS_KEYS signs them"
	case s.unsigned:
		f.OK, f.Detail = false, "live events and heartbeats are signed, and believed without"
		f.Remedy = "take the word unsigned out of TURNPIKE_BUS_KEYS when all gateways and workers have a key"
	default:
		f.Detail = fmt.Sprintf("live events and heartbeats, keys: %d", len(s.macs))
	}
	return f
}

// applied reports whether an abort says, and may be believed, that it is in the store already.
func (b *Bus) applied(m *nats.Msg) bool {
	return m.Header.Get(bus.HeaderApplied) != "" && b.signer.Load().stored(m, senderAborts, -1)
}
