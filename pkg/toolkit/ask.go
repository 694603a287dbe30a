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

// Nobody knows how many services will answer: who has not after a while since the
// last one did does not count.
const (
	quiet  = 400 * time.Millisecond
	enough = 3 * time.Second

	// maxAnswers bounds the bytes of all answers to a question: what comes after is not read.
	maxAnswers = 4 << 20
)

// AskServices puts a question to all services of a tenant, and returns the answers that are what
// they should be. It takes half a second, or more if many answer; none if there are none.
func AskServices[T any](ctx context.Context, nc *nats.Conn, prefix, tenant string, verb micro.Verb) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	inbox := NewDiscoveryInbox(nc, prefix, tenant)
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("ask the services: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails on a closed connection only
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

// ServedSubjects returns the subjects on which services answer a tenant of the deployment with
// this prefix, tools and hooks among them.
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
