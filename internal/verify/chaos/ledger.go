package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Effect is one line of the ledger: something that a tool did in the world, or a
// disturbance that a worker made on purpose.
type Effect struct {
	At     time.Time `json:"at"`
	Worker string    `json:"worker"`

	Run    string `json:"run,omitempty"`
	Call   string `json:"call,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Key    string `json:"key,omitempty"`    // the idempotency key
	Nonce  string `json:"nonce,omitempty"`  // of the model's answer that asked for it
	Result string `json:"result,omitempty"` // what the tool answered: no two are equal

	// Hook is the point at which a hook was asked; "" for a tool.
	Hook string `json:"hook,omitempty"`

	// Fault is set for disturbances, and names it.
	Fault string `json:"fault,omitempty"`
}

// Ledger is a file that any number of processes append to. A line is there before
// the tool that wrote it goes on, and stays whatever happens to its process.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
}

// OpenLedger opens the ledger at path, which need not exist.
func OpenLedger(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Ledger{file: f}, nil
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

// ReadLedger returns what the ledger at path holds, in the order in which it was
// written. A line that its writer's death cut off is an error: the kernel writes
// lines whole.
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
	return all, lines.Err()
}
