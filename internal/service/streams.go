package service

import (
	"context"
	"errors"
	"time"
)

// ErrNoStream reports a JetStream stream that does not exist.
var ErrNoStream = errors.New("the stream does not exist")

// ErrStreamRefused reports a consumer that NATS does not create in a stream. Its text says why.
var ErrStreamRefused = errors.New("NATS refuses the consumer of the trigger")

// Streams are the JetStream streams of users, which triggers read. Its methods are safe for concurrent
// use.
type Streams interface {
	// Inspect describes a stream, or returns ErrNoStream.
	Inspect(ctx context.Context, stream string) (StreamInfo, error)

	// Open returns the durable consumer of a trigger. It creates a missing one, and changes the subjects
	// and InOrder of an existing one. The error wraps ErrNoStream or ErrStreamRefused, or NATS did not
	// answer.
	Open(ctx context.Context, spec ConsumerSpec) (StreamConsumer, error)

	// Pending returns the number of messages that no gateway has fetched with a consumer, and of those that
	// a gateway has fetched and neither acknowledged nor terminated.
	Pending(ctx context.Context, stream, name string) (pending, inFlight int64, err error)

	// Remove deletes the consumer with the name in a stream, if there is one.
	Remove(ctx context.Context, stream, name string) error
}

// StreamInfo describes a stream.
type StreamInfo struct {
	Subjects []string  // that it stores; > of one that copies other streams
	Own      bool      // Turnpike's, or a copy of one that is
	Now      time.Time // by the clock of the server
}

// ConsumerSpec describes the consumer of a trigger.
type ConsumerSpec struct {
	Stream   string
	Name     string    // without the part that says which stream of that name it is
	Subjects []string  // empty: all
	From     time.Time // the zero time: from the first message
	InOrder  bool      // one message at a time
}

// StreamConsumer is a durable consumer that all gateways share.
type StreamConsumer interface {
	// Fetch calls take for up to most messages, as they arrive, until ctx or the request ends. It returns
	// nil if there were none, and an error if the consumer must be opened again.
	Fetch(ctx context.Context, most int, take func(StreamMessage)) error
}

// StreamMessage is a message of a stream, without its body until Body reads it.
type StreamMessage interface {
	// ID identifies the message. It is the same at each delivery, and no other message of any stream has
	// or had it.
	ID() string

	Subject() string
	Headers() map[string][]string
	Size() int64    // of the body, in bytes
	Delivered() int // from 1

	// Body reads the body. ErrNoMessage means that the stream has deleted the message.
	Body(ctx context.Context) ([]byte, error)

	Ack() error
	Nak(delay time.Duration) error
	Terminate(reason string) error
	InProgress() error
}

// ErrNoMessage reports a message that its stream has deleted.
var ErrNoMessage = errors.New("the stream has deleted the message, so it cannot be read any more")

// StreamAckWait is the time after which NATS delivers an unacknowledged message of a trigger again.
const StreamAckWait = 30 * time.Second
