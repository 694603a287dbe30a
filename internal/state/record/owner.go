package record

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
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

// keyTries is the number of times that Create tries to take a key that names deleted runs.
const keyTries = 3

// Create creates a run by calling create, and returns its result, unless the key of the run names another run, which
// was deleted. In that case create returns the id of the deleted run and state.ErrDeleted. Create then calls free,
// which removes the key if it still names the deleted run, and calls create again. After three such attempts (keyTries)
// it returns an error that is not state.ErrDeleted, since a repetition may succeed. It returns an error of free at
// once.
func Create(n state.NewRun, create func() (state.Created, error), free func(state.RunID) error) (state.Created, error) {
	for range keyTries {
		made, err := create()
		if !errors.Is(err, state.ErrDeleted) || n.Key == "" || made.State.ID == n.State.ID {
			return made, err
		}
		if err := free(made.State.ID); err != nil {
			return state.Created{}, err
		}
	}
	return state.Created{}, fmt.Errorf("create run: its idempotency key named a deleted run in each of %d tries: retry with the same key", keyTries)
}
