package natsstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Pin implements state.Agents.
func (s *Store) Pin(ctx context.Context, key string, value []byte) ([]byte, error) {
	subject := s.cfg.Prefix + ".state.pin." + hex.EncodeToString([]byte(key))
	if len(value) > 0 {
		if _, err := s.publish(ctx, subject, value, 0); err != nil && !conflict(err) {
			return nil, fmt.Errorf("pin %s: %w", key, err)
		}
	}
	m, err := s.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pin %s: %w", key, err)
	}
	var kept []byte
	if err := json.Unmarshal(m.Data, &kept); err != nil {
		return nil, fmt.Errorf("decode pin %s: %w", key, err)
	}
	return kept, nil
}
