package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Webhook is an address that receives events of a run, as Standard Webhooks describe.
type Webhook struct {
	// URL has the scheme https, or http where the workers allow it, and at most 2,048 bytes.
	URL string `json:"url"`

	// Events are EntryFinished and EntryWaiting. Empty is EntryFinished. Waits for a time or for child
	// runs are not events.
	Events []EntryType `json:"events,omitempty"`

	// Secret has references, secret://NAME, to the secrets that sign the events: two while one is
	// rotated. Without one, events are not signed.
	Secret SecretReferences `json:"secret,omitempty"`
}

const (
	maxWebhookURL     = 2048
	maxWebhookSecrets = 2
)

// Wants reports whether the webhook receives entries of a type.
func (w *Webhook) Wants(t EntryType) bool {
	if len(w.Events) == 0 {
		return t == EntryFinished
	}
	return slices.Contains(w.Events, t)
}

// Check returns an error that names the first mistake in w, with its remedy, or nil.
func (w *Webhook) Check() error {
	u, err := url.Parse(w.URL)
	switch {
	case len(w.URL) > maxWebhookURL:
		return fmt.Errorf("url has %d bytes, at most %d are allowed: use a shorter URL", len(w.URL), maxWebhookURL)
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("url is not an http or https URL: write one such as https://example.com/events")
	case u.User != nil || u.Fragment != "":
		return errors.New("url has a user, password or fragment: remove it; a secret signs each delivery instead")
	}
	for _, t := range w.Events {
		if t != EntryFinished && t != EntryWaiting {
			return fmt.Errorf("events: %.40q is not an event for webhooks: write %s or %s", t, EntryFinished, EntryWaiting)
		}
	}
	if n := len(w.Secret); n > maxWebhookSecrets {
		return fmt.Errorf("secret has %d references, at most %d are allowed: remove those that are no longer in use", n, maxWebhookSecrets)
	}
	for _, ref := range w.Secret {
		if name, ok := strings.CutPrefix(ref, "secret://"); !ok || name == "" {
			return errors.New("secret is not a reference: write one such as secret://WEBHOOK, never the secret itself")
		}
	}
	return nil
}

// SecretReferences are references to secrets. In JSON they are a string, or a list of strings; null means none.
type SecretReferences []string

// MarshalJSON implements json.Marshaler.
func (s SecretReferences) MarshalJSON() ([]byte, error) {
	if len(s) == 1 {
		return json.Marshal(s[0])
	}
	return json.Marshal([]string(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *SecretReferences) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*s = nil
		return nil
	}
	var one string
	if json.Unmarshal(data, &one) == nil {
		*s = SecretReferences{one}
		return nil
	}
	var all []string
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("the reference to a secret is %.100s, neither a string nor a list of strings: write one such as \"secret://WEBHOOK\", or a list of them", data)
	}
	if len(all) == 0 {
		return errors.New("the list of references to secrets is empty: write one such as \"secret://WEBHOOK\", or omit secret to send unsigned events")
	}
	*s = all
	return nil
}
