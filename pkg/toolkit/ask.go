package toolkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// Bounds of a request to all services, whose number is unknown: it ends when no answer has arrived for quiet, or after
// enough.
const (
	quiet  = 400 * time.Millisecond
	enough = 3 * time.Second

	// maxAnswers bounds the bytes of all answers to a request. Later answers are ignored.
	maxAnswers = 4 << 20
)

// AskServices sends a request to all services of a tenant, and returns the answers that decode into T. It returns when
// no answer has arrived for 0.4 seconds, after 3 seconds, after 4 MiB of answers, or at the deadline of ctx. It returns
// no answers without a service, and an error if ctx is cancelled or the connection fails.
func AskServices[T any](ctx context.Context, nc *nats.Conn, prefix, tenant string, verb micro.Verb) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	inbox := NewDiscoveryInbox(nc, prefix, tenant)
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("ask the services: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only on a closed connection
	if err := nc.PublishRequest(DiscoverySubject(verb, prefix, tenant), inbox, nil); err != nil {
		return nil, fmt.Errorf("ask the services: %w", err)
	}
	var answers []T
	room := maxAnswers
	for {
		patient, cancel := context.WithTimeout(ctx, quiet)
		m, err := sub.NextMsgWithContext(patient)
		cancel()
		switch {
		case err == nil:
			var answer T
			if room -= len(m.Data); room < 0 {
				return answers, nil
			}
			if json.Unmarshal(m.Data, &answer) == nil {
				answers = append(answers, answer)
			}
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
			return answers, nil
		default:
			return nil, fmt.Errorf("ask the services: %w", err)
		}
	}
}

// ServedSubjects returns the subjects on which the services of a tenant answer, those of tools and hooks included, in
// the deployment with this prefix. Its errors are those of AskServices.
func ServedSubjects(ctx context.Context, nc *nats.Conn, prefix, tenant string) ([]string, error) {
	infos, err := AskServices[micro.Info](ctx, nc, prefix, tenant, micro.InfoVerb)
	var subjects []string
	for _, info := range infos {
		for _, e := range info.Endpoints {
			subjects = append(subjects, e.Subject)
		}
	}
	return subjects, err
}
