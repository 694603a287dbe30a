package streamin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// maxAckPending is the number of messages of a trigger that all gateways have fetched, those that wait
	// for another delivery among them.
	maxAckPending = 1000

	// answerTimeout bounds a request to NATS.
	answerTimeout = 5 * time.Second

	// maxOrigins bounds the number of streams that Inspect reads to find what one stream copies.
	maxOrigins = 20
)

// Streams are the streams of an account. It is safe for concurrent use.
type Streams struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	api    string // what requests to JetStream begin with
	prefix string // of the streams of the deployment
}

var _ service.Streams = (*Streams)(nil)

// New returns the streams that a connection reaches in a domain; "" is that of the connected server. Prefix
// is that of the deployment.
func New(nc *nats.Conn, domain, prefix string) (*Streams, error) {
	s := &Streams{nc: nc, api: jetstream.DefaultAPIPrefix, prefix: streamPrefix(prefix)}
	var err error
	if domain == "" {
		s.js, err = jetstream.New(nc)
	} else {
		s.js, err = jetstream.NewWithDomain(nc, domain)
		s.api = "$JS." + domain + ".API."
	}
	return s, err
}

// streamPrefix returns what the names of the streams of a deployment begin with.
func streamPrefix(prefix string) string {
	return strings.ToUpper(strings.ReplaceAll(prefix, ".", "_")) + "_"
}

func (s *Streams) info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: %s", service.ErrNoStream, name)
	}
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	return stream.CachedInfo(), nil
}

// Inspect implements service.Streams.
func (s *Streams) Inspect(ctx context.Context, name string) (service.StreamInfo, error) {
	info, err := s.info(ctx, name)
	if err != nil {
		return service.StreamInfo{}, err
	}
	out := service.StreamInfo{Subjects: info.Config.Subjects, Now: info.TimeStamp}
	if len(origins(info.Config)) > 0 {
		out.Subjects = []string{">"}
	}
	asked := 0
	out.Own, err = s.own(ctx, info.Config, &asked)
	return out, err
}

// origins returns the streams that a stream copies.
func origins(c jetstream.StreamConfig) []*jetstream.StreamSource {
	if c.Mirror != nil {
		return []*jetstream.StreamSource{c.Mirror}
	}
	return c.Sources
}

// own reports whether a stream is one of a deployment of Turnpike, with whatever prefix, or a bucket, or a
// copy of one that is. A copy whose origin cannot be examined counts as one.
func (s *Streams) own(ctx context.Context, c jetstream.StreamConfig, asked *int) (bool, error) {
	if strings.HasPrefix(c.Name, s.prefix) || strings.HasPrefix(c.Name, "KV_") || strings.HasPrefix(c.Name, "OBJ_") {
		return true, nil
	}
	for i := range len(c.Name) {
		if c.Name[i] != '_' {
			continue
		}
		if *asked++; *asked > maxOrigins {
			return true, nil
		}
		turns, err := s.info(ctx, c.Name[:i]+"_TURNS")
		if errors.Is(err, service.ErrNoStream) {
			continue
		}
		if err != nil {
			return false, err
		}
		if isTurns(turns.Config) {
			return true, nil
		}
	}
	for _, from := range origins(c) {
		if from.External != nil {
			return true, nil // it may be a deployment of another account
		}
		if *asked++; *asked > maxOrigins {
			return true, nil
		}
		info, err := s.info(ctx, from.Name)
		if errors.Is(err, service.ErrNoStream) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if own, err := s.own(ctx, info.Config, asked); own || err != nil {
			return own, err
		}
	}
	return false, nil
}

// isTurns reports whether a stream holds the turns of a deployment.
func isTurns(c jetstream.StreamConfig) bool {
	if len(c.Subjects) != 1 || c.Retention != jetstream.WorkQueuePolicy {
		return false
	}
	prefix, ok := strings.CutSuffix(c.Subjects[0], ".turn.>")
	return ok && streamPrefix(prefix)+"TURNS" == c.Name
}

// consumerName returns the name of a consumer in a stream that was created at a time.
func consumerName(name string, created time.Time) string {
	return name + "_" + strconv.FormatInt(created.UnixNano(), 10)
}

// Open implements service.Streams.
func (s *Streams) Open(ctx context.Context, spec service.ConsumerSpec) (service.StreamConsumer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	info, err := s.info(ctx, spec.Stream)
	if err != nil {
		return nil, err
	}
	config := jetstream.ConsumerConfig{
		Durable: consumerName(spec.Name, info.Created), Description: "trigger of Turnpike", FilterSubjects: spec.Subjects,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: service.StreamAckWait, MaxDeliver: -1, MaxAckPending: maxAckPending, HeadersOnly: true,
	}
	if spec.InOrder {
		config.MaxAckPending = 1
	}
	if !spec.From.IsZero() {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &spec.From
	}
	c, err := s.js.CreateOrUpdateConsumer(ctx, spec.Stream, config)
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.Code < 500 {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, fmt.Errorf("%w: %s", service.ErrNoStream, spec.Stream)
		}
		return nil, fmt.Errorf("%w: %s", service.ErrStreamRefused, refusal(refused))
	}
	if err != nil {
		return nil, fmt.Errorf("create consumer of stream %s: %w", spec.Stream, err)
	}
	return &consumer{s, c, spec.Stream, info.Created.UnixNano()}, nil
}

// refusal returns JetStream's reason for not creating a consumer and the remedy, as text for callers. The reason is
// JetStream's description of a limit or a rule of workqueues, otherwise only its code, because another description may
// contain names of the account that no tenant must see.
func refusal(e *jetstream.APIError) string {
	switch e.ErrorCode {
	case 10026:
		return e.Description + ": delete a consumer that is not in use, or raise the limit of the stream or of its NATS account"
	case 10099, 10100:
		return e.Description + ": set subjects in the trigger that no other consumer of the stream reads, or delete the other consumer"
	case 10101:
		return e.Description + ": set from to " + api.FromAll + " in the trigger"
	case 10121:
		return fmt.Sprintf("%s: raise max_ack_pending of the stream or of the NATS account to %d", e.Description, maxAckPending)
	case 10134:
		return e.Description + ": set the same number of replicas for both"
	default:
		return fmt.Sprintf("JetStream reported the error code %d: ask the operator of NATS what it means, and correct the stream or the trigger", e.ErrorCode)
	}
}

// Pending implements service.Streams.
func (s *Streams) Pending(ctx context.Context, stream, name string) (pending, inFlight int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	info, err := s.info(ctx, stream)
	if err != nil {
		return 0, 0, err
	}
	c, err := s.js.Consumer(ctx, stream, consumerName(name, info.Created))
	if err != nil {
		return 0, 0, fmt.Errorf("read consumer of stream %s: %w", stream, err)
	}
	have := c.CachedInfo()
	return int64(have.NumPending), int64(have.NumAckPending), nil //nolint:gosec // no stream has 2^63 messages
}

// Remove implements service.Streams.
func (s *Streams) Remove(ctx context.Context, stream, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	info, err := s.info(ctx, stream)
	if errors.Is(err, service.ErrNoStream) {
		return nil // its consumers ended with it
	}
	if err != nil {
		return err
	}
	err = s.js.DeleteConsumer(ctx, stream, consumerName(name, info.Created))
	if err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return fmt.Errorf("delete consumer of stream %s: %w", stream, err)
}

// consumer is the consumer of a trigger.
type consumer struct {
	streams *Streams
	c       jetstream.Consumer
	stream  string
	created int64 // of the stream, in Unix nanoseconds
}

// Fetch implements service.StreamConsumer.
func (c *consumer) Fetch(ctx context.Context, most int, take func(service.StreamMessage)) error {
	batch, err := c.c.Fetch(most, jetstream.FetchContext(ctx))
	if err != nil {
		return fmt.Errorf("fetch messages of stream %s: %w", c.stream, err)
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil || ctx.Err() != nil {
			_ = m.Nak() // another gateway may take it at once
			continue
		}
		take(&message{c, m, meta})
	}
	err = batch.Error()
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("fetch messages of stream %s: %w", c.stream, err)
}

// message is a message of a stream, with its headers only.
type message struct {
	from *consumer
	m    jetstream.Msg
	meta *jetstream.MsgMetadata
}

// ID implements service.StreamMessage.
func (m *message) ID() string {
	return fmt.Sprintf("%s:%d:%d", m.from.stream, m.meta.Sequence.Stream, m.from.created)
}

func (m *message) Subject() string { return m.m.Subject() }

// headerSize is the header of a message without its body that has the size of the body.
const headerSize = "Nats-Msg-Size"

// Headers implements service.StreamMessage.
func (m *message) Headers() map[string][]string {
	headers := map[string][]string{}
	for name, values := range m.m.Headers() {
		if name != headerSize {
			headers[name] = values
		}
	}
	return headers
}

func (m *message) Size() int64 {
	size, err := strconv.ParseInt(m.m.Headers().Get(headerSize), 10, 64)
	if err != nil {
		return int64(len(m.m.Data()))
	}
	return size
}

func (m *message) Delivered() int {
	return int(m.meta.NumDelivered) //nolint:gosec // no message is delivered 2^63 times
}

// Body implements service.StreamMessage. The leader of the stream answers: a replica may not have the
// message yet.
func (m *message) Body(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]uint64{"seq": m.meta.Sequence.Stream})
	if err != nil {
		return nil, err
	}
	answer, err := m.from.streams.nc.RequestWithContext(ctx, m.from.streams.api+"STREAM.MSG.GET."+m.from.stream, request)
	if err != nil {
		return nil, fmt.Errorf("read a message of stream %s: %w", m.from.stream, err)
	}
	var said struct {
		Message struct {
			Data []byte    `json:"data"`
			Time time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil {
		return nil, fmt.Errorf("read a message of stream %s: %w", m.from.stream, err)
	}
	if said.Error != nil && said.Error.Code == 404 {
		return nil, service.ErrNoMessage
	}
	if said.Error != nil {
		return nil, fmt.Errorf("read a message of stream %s: %w", m.from.stream, said.Error)
	}
	if !said.Message.Time.Equal(m.meta.Timestamp) {
		return nil, service.ErrNoMessage // the stream was created again: this is another message
	}
	return said.Message.Data, nil
}

func (m *message) Ack() error                    { return m.m.Ack() }
func (m *message) Nak(delay time.Duration) error { return m.m.NakWithDelay(delay) }
func (m *message) InProgress() error             { return m.m.InProgress() }

// controls are the characters that the reason of a termination must not have.
var controls = regexp.MustCompile(`[^a-z_]`)

func (m *message) Terminate(reason string) error {
	return m.m.TermWithReason(controls.ReplaceAllString(reason, "_"))
}
