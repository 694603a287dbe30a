package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
)

// frozen is a fixture: a deployment that stands still.
type frozen struct {
	Runs    map[string]frozenRun `json:"runs"` // by the name of the story
	Keys    []key                `json:"keys,omitempty"`
	Streams []message            `json:"streams"`
}

// frozenRun is a run as it stands, and what must become of it.
type frozenRun struct {
	ID     string `json:"id"`
	Frozen string `json:"frozen"`
	Want   string `json:"want"`
	Output string `json:"output,omitempty"`
	Say    string `json:"say,omitempty"`
	Events int    `json:"events"` // in its log
}

// key is a key of Redis.
type key struct {
	Name   string            `json:"name"`
	Text   *string           `json:"text,omitempty"`
	Hash   map[string]string `json:"hash,omitempty"`
	List   []string          `json:"list,omitempty"`
	Set    []string          `json:"set,omitempty"`
	Sorted []member          `json:"sorted,omitempty"`
}

type member struct {
	Member string  `json:"member"`
	Score  float64 `json:"score"`
}

// message is a message of a stream.
type message struct {
	Subject string      `json:"subject"`
	Header  nats.Header `json:"header,omitempty"`
	Data    string      `json:"data"`
}

func fixture(format int, store string) string {
	return filepath.Join("testdata", fmt.Sprintf("v%d", format), store+".json")
}

// write stores the fixture for good, with all times in it a year or two ago: leases
// have run out and delays are over, whenever and wherever it is loaded.
func (f frozen) write(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there, and what an earlier build wrote must not be written by this one: %w", path, err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(f); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, past(b.Bytes()), 0o600)
}

var (
	dates   = regexp.MustCompile(`\b20\d\d(-\d\d-\d\dT\d\d:)`)
	instant = regexp.MustCompile(`\b1[789]\d{11}\b`)
)

func past(b []byte) []byte {
	b = dates.ReplaceAll(b, []byte("2024$1"))
	return instant.ReplaceAllFunc(b, func([]byte) []byte { return []byte("1717200000000") })
}

func thaw(t *testing.T, path string) frozen {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f frozen
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// readKeys returns everything that Redis has.
func readKeys(ctx context.Context, rdb *redis.Client) ([]key, error) {
	names, err := rdb.Keys(ctx, "*").Result()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var keys []key
	for _, name := range names {
		k := key{Name: name}
		kind, err := rdb.Type(ctx, name).Result()
		if err != nil {
			return nil, err
		}
		switch kind {
		case "none":
			continue // it is gone meanwhile
		case "string":
			var text string
			text, err = rdb.Get(ctx, name).Result()
			k.Text = &text
			if errors.Is(err, redis.Nil) {
				continue
			}
		case "hash":
			k.Hash, err = rdb.HGetAll(ctx, name).Result()
		case "list":
			k.List, err = rdb.LRange(ctx, name, 0, -1).Result()
		case "set":
			k.Set, err = rdb.SMembers(ctx, name).Result()
		case "zset":
			var zs []redis.Z
			zs, err = rdb.ZRangeWithScores(ctx, name, 0, -1).Result()
			for _, z := range zs {
				k.Sorted = append(k.Sorted, member{fmt.Sprint(z.Member), z.Score})
			}
		default:
			err = fmt.Errorf("key %s is a %s", name, kind)
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func writeKeys(ctx context.Context, rdb *redis.Client, keys []key) error {
	var errs []error
	for _, k := range keys {
		if k.Text != nil {
			errs = append(errs, rdb.Set(ctx, k.Name, *k.Text, 0).Err())
		}
		for _, field := range slices.Sorted(maps.Keys(k.Hash)) {
			errs = append(errs, rdb.HSet(ctx, k.Name, field, k.Hash[field]).Err())
		}
		for _, e := range k.List {
			errs = append(errs, rdb.RPush(ctx, k.Name, e).Err())
		}
		for _, e := range k.Set {
			errs = append(errs, rdb.SAdd(ctx, k.Name, e).Err())
		}
		for _, e := range k.Sorted {
			errs = append(errs, rdb.ZAdd(ctx, k.Name, redis.Z{Member: e.Member, Score: e.Score}).Err())
		}
	}
	return errors.Join(errs...)
}

// readStreams returns everything on the streams, but for the events that were
// published: the logs have them.
func readStreams(ctx context.Context, js jetstream.JetStream) ([]message, error) {
	var all []message
	for info := range js.ListStreams(ctx).Info() {
		if strings.HasSuffix(info.Config.Name, "_EVENTS") {
			continue
		}
		s, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			return nil, err
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
			m, err := s.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, message{m.Subject, m.Header, string(m.Data)})
		}
	}
	slices.SortStableFunc(all, func(a, b message) int { return strings.Compare(streamOf(a.Subject), streamOf(b.Subject)) })
	return all, nil
}

// withoutRepeats leaves out what a later change of the same run says again: changes that
// add nothing to its log. A run that is deferred again and again has hundreds.
func withoutRepeats(all []message) []message {
	last := map[string]int{}
	for i, m := range all {
		last[m.Subject] = i
	}
	var out []message
	for i, m := range all {
		var change struct {
			Entries []json.RawMessage `json:"entries"`
		}
		if strings.Contains(m.Subject, ".state.run.") && last[m.Subject] != i && json.Unmarshal([]byte(m.Data), &change) == nil && len(change.Entries) == 0 {
			continue
		}
		out = append(out, m)
	}
	return out
}

func streamOf(subject string) string { return strings.Split(subject, ".")[1] }

// writeStreams publishes everything again. Conditions are those of another stream.
func writeStreams(ctx context.Context, js jetstream.JetStream, all []message) error {
	for i, m := range all {
		msg := nats.NewMsg(m.Subject)
		msg.Data = []byte(m.Data)
		for name, values := range m.Header {
			if name != jetstream.ExpectedLastSubjSeqHeader {
				msg.Header[name] = values
			}
		}
		if _, err := js.PublishMsg(ctx, msg); err != nil {
			return fmt.Errorf("message %s on %s: %w", strconv.Itoa(i), m.Subject, err)
		}
	}
	return nil
}
