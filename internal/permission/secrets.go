package permission

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"
)

// Secrets is a directory with the credentials of a deployment's processes.
type Secrets struct {
	Dir   string
	Scope Scope // of gateways and workers; that of others has its prefix and domain

	// Users are the users to make. Users that an earlier call made and that are not named here keep their permissions
	// and their secrets. Make removes the users that Remove names from the servers' files; their folders stay.
	Users  []User
	Remove []string

	// Owners maps the folders in Dir to the numeric ids of the users of this machine who own
	// their files. Other files belong to the user of this process.
	Owners map[string]int
}

// User is a user of a deployment, with the folder of its name.
type User struct {
	Name   string
	Role   Role
	Tenant string   // of a client, a tool or an observer
	Tools  []string // of a tool
}

// Files in the folder of a user, and in those of the servers.
const (
	SeedFile     = "nats.nk"        // the seed of its nkey
	PasswordFile = "redis.password" // #nosec G101 -- a name
	BusKeysFile  = "bus.keys"
	EnvFile      = "env" // the settings with which a process of this machine is the user

	natsFolder, natsFile   = "nats", "users.conf"
	redisFolder, redisFile = "redis", "users.acl"

	// knownFile is in the directory of natsFile. It has the servers' entries of all users, so
	// that a call with one user leaves the others unchanged.
	knownFile = "users.json"
)

// entry is the servers' record of a user. It has no secret.
type entry struct {
	NATS  string `json:"nats"`
	Redis string `json:"redis,omitempty"`
}

// Make writes the secrets of s.Users that do not exist yet, readable by their owner only, and the files of NATS and
// Redis with these users and those of earlier calls, except the ones in s.Remove. The servers' files contain no secret:
// public keys for NATS, hashes for Redis. Existing seeds, passwords and keys stay unchanged.
func (s Secrets) Make() error {
	known, err := s.known()
	if err != nil {
		return err
	}
	for _, name := range s.Remove {
		if _, ok := known[name]; !ok {
			remedy := "omit it"
			if len(known) > 0 {
				remedy = "name one of " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
			}
			return fmt.Errorf("user %q is not listed in %s: %s", name, filepath.Join(s.Dir, natsFolder, knownFile), remedy)
		}
		delete(known, name)
	}
	busKeys, err := s.busKeys(known)
	if err != nil {
		return err
	}
	for _, u := range s.Users {
		if !toolPattern.MatchString(u.Name) || u.Name == natsFolder || u.Name == redisFolder {
			return fmt.Errorf("the user name %q (NAME in --user) is not valid: use 1 to 64 letters, digits, _ and -; %s and %s are reserved", u.Name, natsFolder, redisFolder)
		}
		if known[u.Name], err = s.user(u, busKeys); err != nil {
			return err
		}
	}
	var conf, acl strings.Builder
	conf.WriteString("# Made by `turnpike secrets`, which overwrites it.\nauthorization { users = [\n")
	acl.WriteString(RedisDefaultUser)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		conf.WriteString(known[name].NATS)
		acl.WriteString(known[name].Redis)
	}
	conf.WriteString("] }\n")
	text, err := json.MarshalIndent(known, "", " ")
	if err != nil {
		return err
	}
	// The record comes first: a crash after it loses no user at the next call.
	return errors.Join(s.write(natsFolder, knownFile, text), s.write(natsFolder, natsFile, []byte(conf.String())), s.write(redisFolder, redisFile, []byte(acl.String())))
}

// known returns the users that earlier calls made, by name.
func (s Secrets) known() (map[string]entry, error) {
	path := filepath.Join(s.Dir, natsFolder, knownFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]entry{}, nil
	}
	if err != nil {
		return nil, err
	}
	var known map[string]entry
	if err := json.Unmarshal(text, &known); err != nil || known == nil {
		return nil, fmt.Errorf("%s is not a list of users: restore the file, or delete it and name all users", path)
	}
	return known, nil
}

// user makes the secrets of one user and returns the servers' entry.
func (s Secrets) user(u User, busKeys []byte) (entry, error) {
	root, err := filepath.Abs(s.Dir)
	if err != nil {
		return entry{}, err
	}
	scope := Scope{Prefix: s.Scope.Prefix, Domain: s.Scope.Domain, Tenant: u.Tenant, Tools: u.Tools}
	process := u.Role == Gateway || u.Role == Worker
	if process {
		scope.Also = s.Scope.Also
	}
	n, err := ForNATS(u.Role, scope)
	if err != nil {
		return entry{}, fmt.Errorf("user %s: %w", u.Name, err)
	}
	seed, err := s.keep(u.Name, SeedFile, newSeed)
	if err != nil {
		return entry{}, err
	}
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return entry{}, fmt.Errorf("%s is not the seed of a NATS user (%w): restore the file; or delete it, run turnpike secrets again, which creates another key, and reload NATS (nats-server --signal reload)", filepath.Join(s.Dir, u.Name, SeedFile), err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return entry{}, err
	}
	made := entry{NATS: fmt.Sprintf("# %s\n{nkey: %s\n%s}\n", u.Name, public, n)}
	env := "TURNPIKE_NATS_NKEY_FILE=" + quoted(filepath.Join(root, u.Name, SeedFile)) + "\n"
	if n.Inbox != "" && n.Inbox != "_INBOX" {
		env += "TURNPIKE_NATS_INBOX=" + n.Inbox + "\n"
	}
	if process || u.Role == Observer {
		password, err := s.keep(u.Name, PasswordFile, newPassword)
		if err != nil {
			return entry{}, err
		}
		if made.Redis, err = ForRedis(u.Role, s.Scope.Prefix, u.Name, strings.TrimSpace(string(password))); err != nil {
			return entry{}, fmt.Errorf("user %s: %w", u.Name, err)
		}
		env += "TURNPIKE_REDIS_USER=" + u.Name + "\nTURNPIKE_REDIS_PASSWORD_FILE=" + quoted(filepath.Join(root, u.Name, PasswordFile)) + "\n"
	}
	if process {
		if _, err := s.keep(u.Name, BusKeysFile, func() ([]byte, error) { return busKeys, nil }); err != nil {
			return entry{}, err
		}
		env += "TURNPIKE_BUS_KEYS_FILE=" + quoted(filepath.Join(root, u.Name, BusKeysFile)) + "\n"
	}
	return made, s.write(u.Name, EnvFile, []byte(env))
}

// busKeys returns the keys that the processes of the deployment share, or new ones if it has no
// process yet. Processes with different keys reject each other's messages.
func (s Secrets) busKeys(known map[string]entry) ([]byte, error) {
	names := slices.Sorted(maps.Keys(known))
	for _, u := range s.Users {
		names = append(names, u.Name)
	}
	for _, name := range names {
		keys, err := os.ReadFile(filepath.Join(s.Dir, name, BusKeysFile))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return keys, err
		}
	}
	return newPassword()
}

// keep returns the contents of a file of a folder. If the file does not exist, keep creates it
// with fresh.
func (s Secrets) keep(folder, name string, fresh func() ([]byte, error)) ([]byte, error) {
	path := filepath.Join(s.Dir, folder, name)
	data, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	if data, err = fresh(); err != nil {
		return nil, err
	}
	return data, s.write(folder, name, data)
}

// write puts a file into a folder at once, for the owner of the folder only.
func (s Secrets) write(folder, name string, data []byte) error {
	dir := filepath.Join(s.Dir, folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a folder is entered
		return err
	}
	f, err := os.CreateTemp(dir, "."+name)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is there no more if all went well
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if owner, ok := s.Owners[folder]; ok {
		if err := errors.Join(os.Chown(f.Name(), owner, owner), os.Chown(dir, owner, owner)); err != nil {
			return err
		}
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

// quoted returns a path as a shell and systemd read it.
func quoted(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

func newSeed() ([]byte, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	seed, err := pair.Seed()
	return append(slices.Clone(seed), '\n'), err
}

func newPassword() ([]byte, error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	return append(hex.AppendEncode(nil, b[:]), '\n'), nil
}
