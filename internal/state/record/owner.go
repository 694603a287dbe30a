package record

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// KeyName returns a store's name for an idempotency key of a tenant: 22 letters, digits,
// hyphens and underscores, which encode 128 bits of a hash of both.
func KeyName(tenant, key string) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(tenant)) + ":" + tenant + key))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Owner is the run that has an idempotency key, and the fingerprint of its submission.
type Owner struct {
	Run         state.RunID
	Fingerprint string
}

// String encodes o: the id, a space and the fingerprint.
func (o Owner) String() string { return string(o.Run) + " " + o.Fingerprint }

// OwnerOf decodes what a store keeps under a key, and returns the run. The error is
// state.ErrIdempotencyConflict if fingerprint is not that of the run's submission.
func OwnerOf(stored, fingerprint string) (state.RunID, error) {
	id, have, ok := strings.Cut(stored, " ")
	if !ok {
		return "", fmt.Errorf("decode idempotency key: the store holds %q instead of a run id: %w", stored, state.ErrDamaged)
	}
	if have != fingerprint {
		return "", state.ErrIdempotencyConflict
	}
	return state.RunID(id), nil
}
