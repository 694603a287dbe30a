package gateway_test

import (
	"context"
	"time"

	"github.com/turnpike-dev/turnpike/internal/service"
)

// impatient makes NATS redeliver failed messages a hundred times sooner.
type impatient struct{ service.Streams }

func (i impatient) Open(ctx context.Context, spec service.ConsumerSpec) (service.StreamConsumer, error) {
	c, err := i.Streams.Open(ctx, spec)
	return impatientConsumer{c}, err
}

type impatientConsumer struct{ service.StreamConsumer }

func (i impatientConsumer) Fetch(ctx context.Context, most int, take func(service.StreamMessage)) error {
	return i.StreamConsumer.Fetch(ctx, most, func(m service.StreamMessage) { take(impatientMessage{m}) })
}

type impatientMessage struct{ service.StreamMessage }

func (i impatientMessage) Nak(delay time.Duration) error { return i.StreamMessage.Nak(delay / 100) }
