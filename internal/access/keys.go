package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// keyPrefix begins the text of a key: tp_<id>_<secret>.
const keyPrefix = "tp_"

const (
	idBytes     = 10 // 16 characters
	secretBytes = 32 // 52 characters
	maxKeyText  = 200
	maxKeyName  = 100
)

// keyFresh is the time that a key read from the store stays valid in the cache. Together with the interval at which
// open streams check their caller it is less than five seconds, within which every process refuses a revoked key.
const keyFresh = 2 * time.Second

// maxFresh bounds the entries of each cache; one more clears it.
const maxFresh = 10_000

// storedKey is a key as the store keeps it.
type storedKey struct {
	api.APIKey

	Hash string `json:"hash"` // SHA-256 of the secret, which has 256 random bits
}

// InvalidKeyError reports a key that cannot be created.
type InvalidKeyError struct{ reason string }

func (e *InvalidKeyError) Error() string { return e.reason }

// KeySpec describes a new key.
type KeySpec struct {
	Name      string
	Tenant    string // or AnyTenant
	Roles     []Role
	CreatedBy string
	ExpiresAt state.Time // zero is never
}

// Keys makes and checks API keys. It is safe for concurrent use.
type Keys struct {
	store state.Documents
	now   func() time.Time

	mu    sync.Mutex
	fresh map[string]answer // by id
}

// answer is a cached result of the store for an id.
type answer struct {
	key   storedKey
	found bool
	at    time.Time
}

// NewKeys returns the keys of a deployment.
func NewKeys(store state.Documents) *Keys {
	return &Keys{store: store, now: time.Now, fresh: map[string]answer{}}
}

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Create stores a new key and returns its text, which cannot be retrieved later. The error is an
// *InvalidKeyError if the name, the tenant or the expiry is invalid.
func (k *Keys) Create(ctx context.Context, spec KeySpec) (text string, key api.APIKey, err error) {
	if spec.Tenant != AnyTenant {
		if err := CheckTenant(spec.Tenant); err != nil {
			return "", api.APIKey{}, invalidKey("%v", err)
		}
	}
	if len(spec.Name) > maxKeyName {
		return "", api.APIKey{}, invalidKey("the name of the key has %d bytes, at most %d are allowed: use a shorter name", len(spec.Name), maxKeyName)
	}
	now := k.now()
	if !spec.ExpiresAt.IsZero() && !spec.ExpiresAt.After(now) {
		return "", api.APIKey{}, invalidKey("expires_at is %s, which is not in the future: set a later time", spec.ExpiresAt.Format(time.RFC3339))
	}
	random := make([]byte, idBytes+secretBytes)
	_, _ = rand.Read(random) // never fails
	id, secret := encoding.EncodeToString(random[:idBytes]), encoding.EncodeToString(random[idBytes:])
	key = api.APIKey{ID: id, Name: spec.Name, Tenant: spec.Tenant, Roles: names(spec.Roles), CreatedBy: spec.CreatedBy, CreatedAt: state.At(now), ExpiresAt: spec.ExpiresAt}
	data, err := json.Marshal(storedKey{key, hash(secret)})
	if err != nil {
		return "", api.APIKey{}, err
	}
	if err := k.store.PutDocument(ctx, state.KeyDocument, id, data); err != nil {
		return "", api.APIKey{}, err
	}
	return keyPrefix + id + "_" + secret, key, nil
}

func invalidKey(format string, args ...any) error {
	return &InvalidKeyError{fmt.Sprintf(format, args...)}
}

// equal compares secrets in constant time.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// List returns the keys of a tenant, or all if that is AnyTenant, the oldest first.
func (k *Keys) List(ctx context.Context, tenant string) ([]api.APIKey, error) {
	all, err := k.store.Documents(ctx, state.KeyDocument)
	if err != nil {
		return nil, err
	}
	var keys []api.APIKey
	for id, data := range all {
		var s storedKey
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, fmt.Errorf("decode key %s: %w", id, err)
		}
		if tenant == AnyTenant || s.Tenant == tenant {
			keys = append(keys, s.APIKey)
		}
	}
	slices.SortFunc(keys, func(a, b api.APIKey) int {
		if c := a.CreatedAt.Compare(b.CreatedAt.Time); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return keys, nil
}

// Get returns a key of a tenant, or of any if that is AnyTenant, or state.ErrNotFound.
func (k *Keys) Get(ctx context.Context, tenant, id string) (api.APIKey, error) {
	key, found, err := k.read(ctx, id)
	if err != nil {
		return api.APIKey{}, err
	}
	if !found || tenant != AnyTenant && key.Tenant != tenant {
		return api.APIKey{}, fmt.Errorf("key %.40s: %w", id, state.ErrNotFound)
	}
	return key.APIKey, nil
}

// Revoke deletes a key of a tenant, or of any if that is AnyTenant, and returns it. Every process
// refuses new requests with the key within two seconds. While the store answers, it ends open
// streams of the key within five. Revoke returns state.ErrNotFound if the key does not exist.
func (k *Keys) Revoke(ctx context.Context, tenant, id string) (api.APIKey, error) {
	key, err := k.Get(ctx, tenant, id)
	if err != nil {
		return api.APIKey{}, err
	}
	if err := k.store.DeleteDocument(ctx, state.KeyDocument, id); err != nil {
		return api.APIKey{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.fresh, id)
	return key, nil
}

func (k *Keys) read(ctx context.Context, id string) (storedKey, bool, error) {
	data, err := k.store.Document(ctx, state.KeyDocument, id)
	if errors.Is(err, state.ErrNotFound) {
		return storedKey{}, false, nil
	}
	var key storedKey
	if err == nil {
		err = json.Unmarshal(data, &key)
	}
	return key, err == nil, err
}

// lookUp is read with a cache, whose answers are at most keyFresh old.
func (k *Keys) lookUp(ctx context.Context, id string) (storedKey, bool, error) {
	now := k.now()
	k.mu.Lock()
	a, known := k.fresh[id]
	k.mu.Unlock()
	if known && now.Sub(a.at) < keyFresh {
		return a.key, a.found, nil
	}
	key, found, err := k.read(ctx, id)
	if err != nil {
		return storedKey{}, false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.fresh) >= maxFresh {
		clear(k.fresh)
	}
	k.fresh[id] = answer{key, found, now}
	return key, found, nil
}

// Authenticate implements Authenticator.
func (k *Keys) Authenticate(ctx context.Context, text string) (Principal, error) {
	id, secret, ok := parseKey(text)
	if !ok {
		return Principal{}, unauthenticated("the API key does not have the form %s<id>_<secret>: send the whole key, as it was created", keyPrefix)
	}
	key, found, err := k.lookUp(ctx, id)
	if err != nil {
		return Principal{}, fmt.Errorf("look up the API key: %w", err)
	}
	// The error must not reveal whether the key is missing or its secret is wrong.
	same := equal(hash(secret), key.Hash)
	if !found || !same {
		return Principal{}, unauthenticated("the API key is unknown or was revoked: send another one")
	}
	return k.principal(key)
}

// byID is Authenticate for a caller whose key was verified before.
func (k *Keys) byID(ctx context.Context, id string) (Principal, error) {
	key, found, err := k.lookUp(ctx, id)
	if err != nil {
		return Principal{}, fmt.Errorf("look up the API key: %w", err)
	}
	if !found {
		return Principal{}, unauthenticated("the API key of the session was revoked: log in again with another key")
	}
	return k.principal(key)
}

// principal returns the principal of a key. The error wraps ErrUnauthenticated if the key has expired, or has a
// role that this build does not know.
func (k *Keys) principal(key storedKey) (Principal, error) {
	if !key.ExpiresAt.IsZero() && !k.now().Before(key.ExpiresAt.Time) {
		return Principal{}, unauthenticated("the API key expired at %s: create a new one", key.ExpiresAt.Format(time.RFC3339))
	}
	roles, err := ParseRoles(key.Roles)
	if err != nil {
		return Principal{}, unauthenticated("the API key has the roles %s, and this build does not know all of them: create a new key, or upgrade this gateway", strings.Join(key.Roles, ", "))
	}
	return Principal{Name: "key:" + key.ID, Via: viaKey, Grants: []Grant{{key.Tenant, roles}}}, nil
}

func parseKey(text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok || len(text) > maxKeyText {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	return id, secret, ok && len(id) == encoding.EncodedLen(idBytes) && secret != ""
}
