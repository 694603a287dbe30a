package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// wantPayload is the smallest max_payload that carries everything the gateway accepts.
const wantPayload = 1 << 20

// checkTimeout is the longest wait for the answer to a request that NATS might drop.
const checkTimeout = 5 * time.Second

// Check inspects the server, the streams and the consumers, for doctor and at startup. It changes nothing.
// Without a connection or JetStream it omits the findings that need them.
func (b *Bus) Check(ctx context.Context) []state.Finding {
	if !b.nc.IsConnected() {
		return []state.Finding{{
			Name: "nats: server", Fatal: true, Detail: "not connected", Remedy: "start nats-server with -js, or set TURNPIKE_NATS_URL (in Go, NATS.URL) to its address",
		}}
	}
	jet := b.checkJetStream(ctx)
	findings := []state.Finding{checkVersion(b.nc.ConnectedServerVersion()), b.checkPayload(), b.checkReplicas(), b.checkKeys(), jet}
	if !jet.OK {
		return findings
	}
	findings = append(findings, b.checkStrict(ctx), b.checkLayout(ctx))
	for _, want := range b.streams() {
		findings = append(findings, b.checkStream(ctx, want))
	}
	for _, want := range b.consumers() {
		findings = append(findings, b.checkConsumer(ctx, want))
	}
	return append(findings, b.checkTenants(ctx), b.checkObjects(ctx), b.checkUnpulled(ctx))
}

// CheckWrites writes to streams of turns, as Ready does, and reports whether they accept writes.
func (b *Bus) CheckWrites(ctx context.Context) state.Finding {
	f := state.Finding{Name: "nats: writes", OK: true, Broken: true, Detail: fmt.Sprintf("accepted, streams of turns: %d", len(b.layout.Load().Streams))}
	if _, err := b.js.Stream(ctx, b.turnStream(firstStream)); errors.Is(err, jetstream.ErrStreamNotFound) {
		f.OK, f.Broken, f.Detail, f.Remedy = false, false, "there are no streams yet", "start a gateway or a worker: it creates the streams"
		return f
	}
	if err := b.Ready(ctx); err != nil {
		f.OK, f.Detail = false, err.Error()
		f.Remedy = "find the cause in the log of nats-server and with `nats stream report`: the disk or the account may be full (max_file_store), or the stream sealed or without a leader. Restart nats-server after you have freed a full disk: it refuses further writes until then"
		if denied := b.nc.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
			f.Broken, f.Detail, f.Remedy = false, "unknown: "+denied.Error(), "run `turnpike doctor` with the NATS user of a gateway, which may write to the streams"
		}
	}
	return f
}

func checkVersion(version string) state.Finding {
	f := state.Finding{Name: "nats: version", OK: true, Detail: "nats-server " + version}
	major, minor := parseVersion(version)
	switch {
	case major < 2 || major == 2 && minor < 12:
		f.OK, f.Fatal, f.Remedy = false, true, "upgrade to nats-server 2.15 or later; the minimum is 2.12"
	case major == 2 && minor < 15:
		f.OK, f.Remedy = false, "upgrade to nats-server 2.15 or later: earlier versions may lose messages when a machine fails"
	}
	return f
}

// parseVersion returns zeros if v is not a version.
func parseVersion(v string) (major, minor int) {
	parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	if errors.Join(errMajor, errMinor) != nil {
		return 0, 0
	}
	return major, minor
}

func (conn *connection) checkPayload() state.Finding {
	n := conn.nc.MaxPayload()
	f := state.Finding{Name: "nats: max_payload", OK: n >= wantPayload, Detail: fmt.Sprintf("%d bytes", n)}
	if !f.OK {
		f.Remedy = fmt.Sprintf("set max_payload to %d or more: larger events are omitted from the event feed", wantPayload)
	}
	return f
}

// checkReplicas warns of streams with a single replica in a cluster.
func (conn *connection) checkReplicas() state.Finding {
	cluster := conn.nc.ConnectedClusterName()
	f := state.Finding{Name: "nats: replicas", OK: cluster == "" || conn.cfg.Replicas > 1, Detail: fmt.Sprintf("%d, on a single server", conn.cfg.Replicas)}
	if cluster != "" {
		f.Detail = fmt.Sprintf("%d, on servers of the cluster %s", conn.cfg.Replicas, cluster)
	}
	if !f.OK {
		f.Remedy = "set TURNPIKE_NATS_REPLICAS=3 (in Go, NATS.Replicas) for all gateways and workers, if the cluster has three servers or more; their next start changes existing streams. Until then the loss of one server loses its streams"
	}
	return f
}

func (conn *connection) checkJetStream(ctx context.Context) state.Finding {
	f := state.Finding{Name: "nats: jetstream", OK: true, Fatal: true}
	info, err := conn.js.AccountInfo(ctx)
	if err != nil {
		f.OK, f.Detail, f.Remedy = false, err.Error(), "check that nats-server runs with -js, that its configuration enables JetStream for the account, and that the NATS user of this process may publish to $JS.API.INFO ($JS.DOMAIN.API.INFO with TURNPIKE_NATS_DOMAIN)"
		return f
	}
	f.Detail = fmt.Sprintf("%d streams, %d bytes stored", info.Streams, info.Store)
	return f
}

// checkStrict warns of a server that accepts JetStream requests with unknown fields. Any server acknowledges a
// stored message on the subject that the sender names, even if that is the subject of requests to purge another
// stream. A strict server rejects the acknowledgement there, because it has a field that such a request lacks.
func (conn *connection) checkStrict(ctx context.Context) state.Finding {
	f := state.Finding{Name: "nats: strict", OK: true, Detail: "JetStream requests with unknown fields are rejected"}
	ctx, stop := context.WithTimeout(ctx, checkTimeout)
	defer stop()
	m, err := conn.nc.RequestWithContext(ctx, conn.api+"STREAM.NAMES", []byte(`{"subject":"x","stream":"x"}`))
	var r struct {
		Error *jetstream.APIError `json:"error"`
	}
	switch {
	case err != nil:
		f.Detail = "unknown: " + err.Error()
	case json.Unmarshal(m.Data, &r) != nil || r.Error == nil:
		f.OK, f.Detail = false, "JetStream accepts requests with unknown fields, so every client that may publish submissions can purge the streams of other tenants"
		f.Remedy = "remove strict: false from the block jetstream of the configuration of nats-server"
	default: // rejected
	}
	return f
}

// checkLayout reports the streams that the turns are spread over.
func (ts *turnStreams) checkLayout(ctx context.Context) state.Finding {
	l := ts.layout.Load()
	names := make([]string, len(l.Streams))
	for i, number := range l.Streams {
		names[i] = ts.turnStream(number)
	}
	f := state.Finding{Name: "nats: turn streams", OK: true, Detail: fmt.Sprintf("%d: %s", len(names), strings.Join(names, ", "))}
	for _, number := range l.Draining {
		if s, err := ts.js.Stream(ctx, ts.turnStream(number)); err == nil {
			f.Detail += fmt.Sprintf("; %s is deleted after its remaining %d messages", ts.turnStream(number), s.CachedInfo().State.Msgs)
		}
	}
	if want := ts.cfg.TurnStreams; want != 0 && want != len(names) {
		f.OK = false
		f.Remedy = fmt.Sprintf("set the same TURNPIKE_TURN_STREAMS (in Go, NATS.TurnStreams) in all gateways and workers, and restart one: it is %d here, and the process that starts last decides", want)
	}
	return f
}

// explained returns the detail and the remedy of a finding. remedy is for errors other than a *settingError.
func explained(err error, remedy string) (string, string) {
	if setting, ok := errors.AsType[*settingError](err); ok {
		return setting.fact, setting.remedy
	}
	return err.Error(), remedy
}

func (conn *connection) checkStream(ctx context.Context, want jetstream.StreamConfig) state.Finding {
	f := state.Finding{Name: "nats: stream " + want.Name, OK: true, Detail: "settings are right"}
	s, err := conn.js.Stream(ctx, want.Name)
	if conn.cfg.ReadOnly && errors.Is(err, jetstream.ErrStreamNotFound) {
		f.OK, f.Detail, f.Remedy = false, "does not exist yet", "start a gateway or a worker: it creates it"
		return f
	}
	if err == nil {
		err = differs(want, s.CachedInfo().Config)
	}
	if err != nil {
		f.OK, f.Fatal = false, true
		f.Detail, f.Remedy = explained(err, "check that NATS answers, that the stream exists and has a leader, and that the NATS user of this process may read it; a gateway or a worker creates a missing stream when it starts")
		return f
	}
	if n := s.CachedInfo().Config.Replicas; n < want.Replicas {
		f.OK, f.Detail = false, fmt.Sprintf("%d replicas, want %d", n, want.Replicas)
		f.Remedy = fmt.Sprintf("restart a gateway or a worker with TURNPIKE_NATS_REPLICAS=%[2]d, which adds replicas, or run: nats stream edit %[1]s --replicas %[2]d", want.Name, want.Replicas)
		return f
	}
	if have := s.CachedInfo(); lacksLimit(want, have.Config) {
		f.OK, f.Detail = false, fmt.Sprintf("max bytes is %d, want %d: without a limit the stream may fill the disk that also stores the turns", have.Config.MaxBytes, want.MaxBytes)
		f.Remedy = "raise max_file_store of NATS, or lower TURNPIKE_SUBMIT_MIB, TURNPIKE_CONTROL_MIB, TURNPIKE_DEAD_MIB or TURNPIKE_EVENTS_MIB; then restart a gateway or a worker whose NATS user may change streams"
		if cuts(want, have) {
			f.Remedy = fmt.Sprintf("raise TURNPIKE_DEAD_MIB, or handle all dead letters and then remove them with nats stream purge %[2]s: the stream holds %[1]d bytes", have.State.Bytes, want.Name)
		}
	}
	return f
}

func (conn *connection) checkConsumer(ctx context.Context, want consumerSpec) state.Finding {
	f := state.Finding{Name: fmt.Sprintf("nats: consumer %s of %s", want.config.Durable, want.stream), OK: true, Detail: "settings are right"}
	c, err := conn.js.Consumer(ctx, want.stream, want.config.Durable)
	if conn.cfg.ReadOnly && isMissing(err) {
		f.OK, f.Detail, f.Remedy = false, "does not exist yet", "start a gateway or a worker: it creates it"
		return f
	}
	if err == nil {
		err = differsFixed(want, c.CachedInfo().Config)
	}
	if err != nil {
		f.OK, f.Fatal = false, true
		f.Detail, f.Remedy = explained(err, "check that NATS answers, that the consumer exists, and that the NATS user of this process may read it; a gateway or a worker creates a missing consumer when it starts")
		return f
	}
	if n := c.CachedInfo().Config.MaxAckPending; !want.enough(n) {
		f.OK, f.Detail = false, fmt.Sprintf("max ack pending, the most messages that the consumer delivers without an acknowledgement, is %d instead of %d", n, want.config.MaxAckPending)
		f.Remedy = "restart a gateway or a worker: it corrects the setting"
	}
	return f
}
