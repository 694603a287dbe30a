package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// connection has the JetStream requests that all parts of a bus share: they read and write messages,
// and create and correct streams and consumers. It has no rule about when a stream exists.
type connection struct {
	names

	cfg     Config
	nc      *nats.Conn
	js      jetstream.JetStream
	api     string // what questions to JetStream begin with
	answers *answers
	log     *slog.Logger
}

// ask sends a message once, and waits for the server's answer.
func (conn *connection) ask(ctx context.Context, m *nats.Msg, limit time.Duration) error {
	p, err := conn.answers.send(m)
	if err != nil {
		return err
	}
	return p.wait(ctx, min(publishTimeout, limit))
}

// record is the latest message of a subject. A seq of 0 means that there is no message.
type record struct {
	seq  uint64
	data []byte
	at   time.Time
}

// latest reads the latest message of a subject from the leader of a stream. A missing stream has
// none.
func (conn *connection) latest(ctx context.Context, stream, subject string) (record, error) {
	return conn.message(ctx, stream, map[string]any{"last_by_subj": subject})
}

// message reads a message of a stream from its leader. The parameter which is the body of the NATS request
// STREAM.MSG.GET, such as {"seq": 7}. If the stream or the message does not exist, message returns the zero record.
func (conn *connection) message(ctx context.Context, stream string, which map[string]any) (record, error) {
	request, err := json.Marshal(which)
	if err != nil {
		return record{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	m, err := conn.nc.RequestWithContext(ctx, conn.api+"STREAM.MSG.GET."+stream, request)
	if err != nil {
		return record{}, err
	}
	var said struct {
		Message struct {
			Seq  uint64    `json:"seq"`
			Data []byte    `json:"data"`
			Time time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &said); err != nil {
		return record{}, err
	}
	if said.Error != nil {
		if said.Error.Code == 404 { // no stream, or no message
			return record{}, nil
		}
		return record{}, said.Error
	}
	return record{said.Message.Seq, said.Message.Data, said.Message.Time}, nil
}

var errMoved = errors.New("another process changed the stream at the same time: retry")

// replace stores a message that succeeds the latest one of its subject, which must have the
// sequence revision, 0 for none; else the error is errMoved. If the stream is missing, replace
// creates it and expects no message, whatever revision is. existed means that the stream existed
// before: replace then first waits for deletionTime, so that the server completes the deletion.
// After an error other than errMoved the message may have been stored.
func (conn *connection) replace(ctx context.Context, stream jetstream.StreamConfig, subject string, data []byte, revision uint64, existed bool) error {
	m := newMsg(subject, data, "", jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	err := conn.ask(ctx, m, publishTimeout)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if existed {
			if err := awaitDeletion(ctx); err != nil {
				return err
			}
		}
		if err := conn.ensureStream(ctx, stream); err != nil {
			return err
		}
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
		err = conn.ask(ctx, m, publishTimeout)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return errMoved
	}
	return err
}

// tell makes all processes read the layout, and look for new tenants. The hint may be lost.
func (conn *connection) tell() {
	if err := conn.nc.Publish(conn.hintSubject(), nil); err != nil {
		conn.log.Debug("layout", "error", err) // they look themselves
	}
}

// openError returns the error of a stream or consumer that could not be read, created or changed.
func openError(what string, err error) error {
	return fmt.Errorf("%s cannot be opened (%w): check that NATS answers, has storage left, and permits this process to read, create and change it", what, err)
}

func (conn *connection) ensureStream(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := conn.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		want.MaxBytes = -1 // limit sets it once all streams exist
		if s, err = conn.js.CreateStream(ctx, want); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = conn.js.Stream(ctx, want.Name) // another process was faster, with other settings
		}
	}
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("stream %s cannot be opened (%w): start nats-server with -js, and enable JetStream for the account", want.Name, err)
	case err != nil:
		return openError("stream "+want.Name, err)
	}
	if err := differs(want, s.CachedInfo().Config); err != nil {
		return err
	}
	conn.raise(ctx, want, s)
	return nil
}

func (conn *connection) ensureConsumers(ctx context.Context, specs []consumerSpec) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(sideBySide)
	for _, want := range specs {
		all.Go(func() error { return conn.ensureConsumer(ctx, want) })
	}
	return all.Wait()
}

func (conn *connection) ensureConsumer(ctx context.Context, want consumerSpec) error {
	c, err := conn.js.Consumer(ctx, want.stream, want.config.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrConsumerDoesNotExist):
		if _, err := conn.js.CreateOrUpdateConsumer(ctx, want.stream, want.config); err != nil {
			return openError("consumer "+want.config.Durable+" of "+want.stream, err)
		}
		return nil
	case err != nil:
		return openError("consumer "+want.config.Durable+" of "+want.stream, err)
	}
	have := c.CachedInfo().Config
	if err := differsFixed(want, have); err != nil {
		return err
	}
	if have.AckWait == want.config.AckWait && have.MaxDeliver == want.config.MaxDeliver && want.enough(have.MaxAckPending) {
		return nil
	}
	have.AckWait, have.MaxDeliver = want.config.AckWait, want.config.MaxDeliver
	if !want.enough(have.MaxAckPending) {
		have.MaxAckPending = want.config.MaxAckPending
	}
	if _, err := conn.js.UpdateConsumer(ctx, want.stream, have); err != nil {
		return openError("consumer "+want.config.Durable+" of "+want.stream, err)
	}
	return nil
}
