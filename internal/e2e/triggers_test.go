package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Each message of a stream creates exactly one run, although both gateways are killed repeatedly while they
// take messages.
func TestTriggersSurviveKills(t *testing.T) {
	t.Parallel()
	const messages, kills = 3000, 6
	s := newDeployment(t, 0)
	other := freeAddr(t)
	second := spawn(t, "gateway", append(s.env, "TURNPIKE_ADDR="+other))
	if _, err := s.client.PutAgent(t.Context(), "hello", []byte("name: hello\nmodel: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(s.nats)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if _, err := js.PublishAsync("orders.paid", fmt.Appendf(nil, `{"number":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	var settings api.TriggerSettings
	if err := json.Unmarshal([]byte(`{"stream": "ORDERS", "subjects": ["orders.paid"], "from": "all", "max_per_minute": 60000, "run": {"agent": "hello", "input": "'Order ' + string(event.number)", "metadata": {"number": "string(event.number)"}}}`), &settings); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.PutTrigger(t.Context(), "orders", settings); err != nil {
		t.Fatal(err)
	}
	made := func() int {
		stats, err := s.nats.Request("$JS.API.CONSUMER.LIST.ORDERS", nil, 5*time.Second)
		if err != nil {
			return 0
		}
		var list struct {
			Consumers []jetstream.ConsumerInfo `json:"consumers"`
		}
		if err := json.Unmarshal(stats.Data, &list); err != nil || len(list.Consumers) != 1 {
			t.Fatalf("the stream has the consumers %s, %v", stats.Data, err)
		}
		c := list.Consumers[0]
		return messages - int(c.NumPending) - c.NumAckPending //nolint:gosec // few
	}
	for n := range kills { // while both have taken some messages and hold others
		eventually(t, "messages were taken", func() error {
			if have := made(); have < (n+1)*messages/(kills+2) {
				return fmt.Errorf("%d were", have)
			}
			return nil
		})
		for _, g := range []*process{s.gateway, second} {
			if n%2 == 0 || g == second {
				g.kill()
				g.start()
			}
		}
	}
	eventually(t, "all messages were taken", func() error {
		if have := made(); have < messages {
			return fmt.Errorf("%d of %d were", have, messages)
		}
		return nil
	})
	// The other gateway may have taken the rest while this one starts.
	eventually(t, "the gateway is ready", func() error { return s.client.Ready(t.Context()) })
	numbers := map[string]string{}
	for cursor := ""; ; {
		query := url.Values{"limit": {"1000"}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		page, err := s.client.List(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page.Items {
			number := run.Metadata["number"]
			if before, twice := numbers[number]; twice {
				t.Errorf("message %s created the runs %s and %s", number, before, run.ID)
			}
			numbers[number] = run.ID
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if len(numbers) != messages {
		t.Errorf("%d messages created runs, want %d", len(numbers), messages)
	}
}

// The trigger of docs/how-to/triggers.md reads a stream of turnpike dev's NATS.
func TestTriggerOfDev(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/how-to/triggers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, settings, _ := strings.Cut(string(page), "```yaml trigger\n")
	settings, _, _ = strings.Cut(settings, "```")
	data := t.TempDir()
	c, _ := startDev(t, data)
	c.want(0, "version 1", "agents", "put", file(t, "hello.yaml", "name: hello\nmodel: {provider: scripted, responses: [{text: hello there}]}\n"))
	nc, err := nats.Connect(natsURL(t, data))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	orders := file(t, "orders.yaml", settings)
	c.want(1, "there is no stream ORDERS", "triggers", "put", "orders", orders)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	c.want(0, "trigger orders reads all messages of stream ORDERS\n", "triggers", "put", "orders", orders)
	if _, err := js.Publish(t.Context(), "orders.paid", []byte(`{"number": 17}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run has ended", func() error {
		if out, _ := c.run("ps", "--agent", "hello", "--status", "completed", "-q"); !strings.HasPrefix(out, "run_") {
			return errors.New(out)
		}
		return nil
	})
	eventually(t, "the message is acknowledged", func() error {
		if out, _ := c.run("triggers", "show", "orders"); !strings.Contains(out, "in_flight: 0") || !strings.Contains(out, "pending: 0") {
			return errors.New(out)
		}
		return nil
	})
	c.want(0, "orders.paid", "triggers", "ls")
	c.want(0, "removed trigger orders", "triggers", "rm", "orders")
	c.want(1, "there is no trigger", "triggers", "show", "orders")
}
