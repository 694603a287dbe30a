package chaos

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Effect is one line of the ledger: an effect of a tool, or a fault that a worker caused on purpose.
type Effect struct {
	At     time.Time `json:"at"`
	Worker string    `json:"worker"`

	Run    string `json:"run,omitempty"`
	Call   string `json:"call,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Key    string `json:"key,omitempty"`    // the idempotency key
	Nonce  string `json:"nonce,omitempty"`  // of the model answer that called it
	Result string `json:"result,omitempty"` // the tool's answer: no two are equal

	// Hook is the point at which a hook was called; "" for a tool.
	Hook string `json:"hook,omitempty"`

	// Fault is set for disturbances, and names it.
	Fault string `json:"fault,omitempty"`
}

// Ledger is a file that any number of processes append to. A line is written before the tool continues, and
// stays whatever happens to its process.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
	keys string // directory of the effects written under keys
}

// keysOf returns the directory of the effects under keys of the ledger at path.
func keysOf(path string) string { return path + ".keys" }

// OpenLedger opens the ledger at path, which need not exist.
func OpenLedger(path string) (*Ledger, error) {
	if err := os.MkdirAll(keysOf(path), 0o700); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Ledger{file: f, keys: keysOf(path)}, nil
}

// Once writes e under its key, unless the key has an effect, and returns the stored one. The step
// is atomic among all processes, whenever they die. An effect without a result refuses the key.
func (l *Ledger) Once(e Effect) (was Effect, err error) {
	line, err := json.Marshal(e)
	if err != nil {
		return Effect{}, fmt.Errorf("write ledger: %w", err)
	}
	f, err := os.CreateTemp(l.keys, "new-*")
	if err != nil {
		return Effect{}, fmt.Errorf("write ledger: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(line)
	name := filepath.Join(l.keys, fmt.Sprintf("%x.json", sha256.Sum256([]byte(e.Key))))
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Link(f.Name(), name)
	}
	if err == nil {
		return e, nil
	}
	if errors.Is(err, fs.ErrExist) {
		line, err = os.ReadFile(name)
	}
	if err == nil {
		err = json.Unmarshal(line, &was)
	}
	if err != nil {
		return Effect{}, fmt.Errorf("write ledger: %w", err)
	}
	return was, nil
}

// Append writes one line, in one write.
func (l *Ledger) Append(e Effect) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }

// ReadLedger returns the effects in the ledger at path, in the order of writing, followed by those
// under keys. A line that its writer's death cut off is an error: the kernel writes lines whole.
func ReadLedger(path string) ([]Effect, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	var all []Effect
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var e Effect
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read ledger: line %d: %w", n, err)
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(keysOf(path), "*.json"))
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	for _, name := range names {
		var e Effect
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, &e)
		}
		if err != nil {
			return nil, fmt.Errorf("read ledger: %w", err)
		}
		if e.Result != "" { // else the key is refused
			all = append(all, e)
		}
	}
	return all, nil
}
