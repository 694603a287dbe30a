package service

import (
	"context"
	"errors"
	"time"
)

// ErrNoStream reports a JetStream stream that does not exist.
var ErrNoStream = errors.New("the stream does not exist")

// ErrStreamRefused reports that NATS refuses to create a consumer in a stream. An error that wraps it has the reason
// and the remedy.
var ErrStreamRefused = errors.New("NATS refuses the consumer with which the trigger would read its stream")

// Streams are the JetStream streams of users, which triggers read. Implementations must be safe for concurrent use.
type Streams interface {
	// Inspect describes a stream. The error wraps ErrNoStream if it does not exist.
	Inspect(ctx context.Context, stream string) (StreamInfo, error)

	// Open returns the durable consumer of a trigger. It creates a missing one, and updates the subjects and InOrder
	// of an existing one. The error wraps ErrNoStream or ErrStreamRefused; any other error means that NATS did not
	// answer or could not serve the request.
	Open(ctx context.Context, spec ConsumerSpec) (StreamConsumer, error)

	// Pending returns the number of messages that no gateway has fetched with a consumer, and of those that
	// a gateway has fetched and neither acknowledged nor terminated.
	Pending(ctx context.Context, stream, name string) (pending, inFlight int64, err error)

	// Remove deletes the consumer with the name in a stream, if there is one.
	Remove(ctx context.Context, stream, name string) error
}

// StreamInfo describes a stream.
type StreamInfo struct {
	Subjects []string  // the subjects that it stores; > if it copies other streams
	Own      bool      // it belongs to Turnpike, or copies such a stream, or is a bucket
	Now      time.Time // by the clock of the server
}

// ConsumerSpec describes the consumer of a trigger.
type ConsumerSpec struct {
	Stream   string
	Name     string    // the name; the implementation appends an identifier of the stream
	Subjects []string  // empty: all subjects
	From     time.Time // only messages stored since; zero: from the first message
	InOrder  bool      // deliver one message at a time
}

// StreamConsumer is a durable consumer that all gateways share.
type StreamConsumer interface {
	// Fetch calls take with up to most messages, as they arrive, until it has most of them, ctx ends or the server ends
	// the request. The error is nil even if there were no messages or ctx has ended; after an error the caller must
	// open the consumer again.
	Fetch(ctx context.Context, most int, take func(StreamMessage)) error
}

// StreamMessage is a message of a stream, without its body until Body reads it.
type StreamMessage interface {
	// ID identifies the message. It is the same at each delivery, and differs from the ids of all other messages of all
	// streams.
	ID() string

	Subject() string
	Headers() map[string][]string
	Size() int64    // size of the body, in bytes
	Delivered() int // number of deliveries, including this one

	// Body reads the body. The error is ErrNoMessage if the stream has deleted the message.
	Body(ctx context.Context) ([]byte, error)

	Ack() error
	Nak(delay time.Duration) error
	Terminate(reason string) error
	InProgress() error
}

// ErrNoMessage reports a message that its stream has deleted.
var ErrNoMessage = errors.New("the stream has deleted the message: publish it again if its run is still wanted")

// StreamAckWait is the time after which NATS delivers an unacknowledged message of a trigger again.
const StreamAckWait = 30 * time.Second
