package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/check"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxWaiting is how many workers may wait for a turn at once. It cannot be
// changed once a consumer exists.
const maxWaiting = 8192

func (b *Bus) streams() []jetstream.StreamConfig {
	base := jetstream.StreamConfig{Storage: jetstream.FileStorage, Replicas: b.cfg.Replicas, Duplicates: 2 * time.Minute, AllowDirect: true}
	queue, events, dead := base, base, base
	queue.Retention, queue.Discard = jetstream.WorkQueuePolicy, jetstream.DiscardNew
	turns, submit, control := queue, queue, queue
	turns.Name, turns.Subjects = b.stream("TURNS"), []string{b.subject("turn", ">")}
	turns.MaxMsgSize = 64 << 10
	submit.Name, submit.Subjects = b.stream("SUBMIT"), []string{b.subject("submit", "*")}
	control.Name, control.Subjects = b.stream("CONTROL"), []string{b.subject("abort", "*")}
	events.Name, events.Subjects = b.stream("EVENTS"), []string{b.subject("events", "*")}
	events.Retention, events.Discard, events.MaxAge = jetstream.LimitsPolicy, jetstream.DiscardOld, 72*time.Hour
	dead.Name, dead.Subjects = b.stream("DEAD"), []string{b.subject("dead", "*")}
	return []jetstream.StreamConfig{turns, submit, control, events, dead}
}

func (b *Bus) laneConfig(lane state.Priority) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: "workers-" + string(lane), FilterSubject: b.subject("turn", string(lane), ">"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.cfg.AckWait, MaxDeliver: -1, MaxAckPending: 50_000, MaxWaiting: maxWaiting,
	}
}

// ensure creates what is missing and refuses what could lose turns.
func (b *Bus) ensure(ctx context.Context) error {
	for _, want := range b.streams() {
		s, err := b.js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = b.js.CreateStream(ctx, want)
		}
		if err != nil {
			return fmt.Errorf("open stream %s: %w", want.Name, err)
		}
		if err := differs(want, s.CachedInfo().Config); err != nil {
			return err
		}
	}
	for _, lane := range state.Priorities() {
		c, err := b.js.CreateOrUpdateConsumer(ctx, b.stream("TURNS"), b.laneConfig(lane))
		if err != nil {
			return fmt.Errorf("open consumer of lane %s: %w", lane, err)
		}
		b.lanes[lane] = c
	}
	intake := jetstream.ConsumerConfig{
		Durable: "gateway", AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.cfg.AckWait, MaxDeliver: -1, MaxAckPending: 10_000, MaxWaiting: 512,
	}
	var err error
	if b.submit, err = b.js.CreateOrUpdateConsumer(ctx, b.stream("SUBMIT"), intake); err != nil {
		return fmt.Errorf("open consumer of submissions: %w", err)
	}
	if b.abort, err = b.js.CreateOrUpdateConsumer(ctx, b.stream("CONTROL"), intake); err != nil {
		return fmt.Errorf("open consumer of aborts: %w", err)
	}
	return nil
}

// differs returns an error that names the first setting of a stream on which
// messages could be lost, and how to mend it.
func differs(want, have jetstream.StreamConfig) error {
	wrong := func(setting string, is, should any) error {
		return fmt.Errorf("stream %s: %s is %v, it must be %v: change it with `nats stream edit %s`, or delete the stream while no run is under way",
			want.Name, setting, is, should, want.Name)
	}
	switch {
	case have.Retention != want.Retention:
		return wrong("retention", have.Retention, want.Retention)
	case have.MaxAge != want.MaxAge && want.MaxAge == 0:
		return wrong("max age", have.MaxAge, "unlimited")
	case want.Retention == jetstream.WorkQueuePolicy && have.Discard != jetstream.DiscardNew:
		return wrong("discard policy", have.Discard, jetstream.DiscardNew)
	case have.Storage != want.Storage:
		return wrong("storage", have.Storage, want.Storage)
	case strings.Join(have.Subjects, " ") != strings.Join(want.Subjects, " "):
		return wrong("subjects", have.Subjects, want.Subjects)
	default:
		return nil
	}
}

// Check looks at the server and at the streams, for doctor and at start-up.
func (b *Bus) Check(ctx context.Context) []check.Finding {
	findings := []check.Finding{b.checkServer()}
	for _, want := range b.streams() {
		f := check.Finding{Name: "nats: stream " + want.Name, OK: true, Fatal: true, Detail: "settings are right"}
		s, err := b.js.Stream(ctx, want.Name)
		if err == nil {
			err = differs(want, s.CachedInfo().Config)
		}
		if err != nil {
			f.OK, f.Detail, f.Remedy = false, err.Error(), "start a gateway or a worker, which create it, or mend the setting"
		}
		findings = append(findings, f)
	}
	for _, lane := range state.Priorities() {
		f := check.Finding{Name: "nats: consumer of lane " + string(lane), OK: true, Detail: "settings are right"}
		if info, err := b.lanes[lane].Info(ctx); err != nil {
			f.OK, f.Fatal, f.Detail, f.Remedy = false, true, err.Error(), "start a worker, which creates it"
		} else if info.Config.MaxWaiting < maxWaiting {
			f.OK, f.Detail = false, fmt.Sprintf("max waiting is %d: workers beyond that get no turns", info.Config.MaxWaiting)
			f.Remedy = "delete the consumer while no turn is under way; it is created anew"
		}
		findings = append(findings, f)
	}
	return findings
}

func (b *Bus) checkServer() check.Finding {
	f := check.Finding{Name: "nats: server", OK: true, Fatal: true}
	if !b.nc.IsConnected() {
		f.OK, f.Detail, f.Remedy = false, "not connected", "start nats-server with -js, or set TURNPIKE_NATS_URL"
		return f
	}
	version := b.nc.ConnectedServerVersion()
	f.Detail = fmt.Sprintf("version %s, max payload %d bytes", version, b.nc.MaxPayload())
	switch major, minor := parseVersion(version); {
	case major < 2 || major == 2 && minor < 12:
		f.OK, f.Remedy = false, "upgrade to nats-server 2.15 or later; 2.12 is the least"
	case major == 2 && minor < 15:
		f.OK, f.Fatal, f.Remedy = false, false, "nats-server 2.15 or later is recommended: earlier ones lost messages after leader changes"
	}
	return f
}

func parseVersion(v string) (major, minor int) {
	parts := strings.SplitN(v, ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, _ = strconv.Atoi(parts[0])
	minor, _ = strconv.Atoi(parts[1])
	return major, minor
}
