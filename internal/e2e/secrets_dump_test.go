package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
)

func fetch(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%v %s", resp.Header, body)
}

// dumpRedis returns every key with its value.
func dumpRedis(t *testing.T, options *redis.Options) string {
	t.Helper()
	ctx := t.Context()
	rdb := redis.NewClient(options)
	defer rdb.Close()
	var all strings.Builder
	keys := rdb.Scan(ctx, 0, "*", 0).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		var value any
		switch typ := rdb.Type(ctx, key).Val(); typ {
		case "string":
			value = rdb.Get(ctx, key).Val()
		case "hash":
			value = rdb.HGetAll(ctx, key).Val()
		case "list":
			value = rdb.LRange(ctx, key, 0, -1).Val()
		case "set":
			value = rdb.SMembers(ctx, key).Val()
		case "zset":
			value = rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "stream":
			value = rdb.XRange(ctx, key, "-", "+").Val()
		default:
			t.Fatalf("key %s is a %s", key, typ)
		}
		fmt.Fprintf(&all, "%s %v\n", key, value)
	}
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// dumpStreams returns every message in the streams.
func dumpStreams(t *testing.T, conn *nats.Conn) string {
	t.Helper()
	ctx := t.Context()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		stream, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
			if m, err := stream.GetMsg(ctx, seq); err == nil {
				fmt.Fprintf(&all, "%s %s %v %s\n", info.Config.Name, m.Subject, m.Header, m.Data)
			}
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}
