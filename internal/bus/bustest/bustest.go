package bustest

import (
	"context"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// AckWait is the ack wait of the buses under test: long enough for a slow machine,
// short enough to wait for.
const AckWait = 5 * time.Second

// soon is the time that the suite waits for expected messages, and briefly for unexpected ones.
const (
	soon    = 2 * time.Minute
	briefly = 50 * time.Millisecond
)

// Submitter is a method that the suite needs in addition to bus.Bus: Submit puts a submission into
// the intake, as a service would.
type Submitter interface {
	Submit(tenant, agent string, data []byte, headers map[string]string)
}

// Spread is an optional ability of a bus whose turns are spread over several streams: Streams returns
// their number.
type Spread interface {
	Streams() int
}

// Exercise runs the suite. open returns a bus with the ack wait AckWait that is a Submitter and shares
// nothing with the buses of other calls.
func Exercise(t *testing.T, open func(t *testing.T) bus.Bus) {
	t.Helper()
	topics := []struct {
		name string
		test func(t *testing.T, b bus.Bus)
	}{
		{"TurnUntilAcked", testTurnUntilAcked},
		{"TurnAfterAckWait", testTurnAfterAckWait},
		{"TurnInProgress", testTurnInProgress},
		{"TurnNakDelay", testTurnNakDelay},
		{"TurnDuplicates", testTurnDuplicates},
		{"TurnLanes", testTurnLanes},
		{"TurnBacklog", testTurnBacklog},
		{"TurnUnknownLane", testTurnUnknownLane},
		{"StickyTurns", testStickyTurns},
		{"StickyTurnsOfALostWorker", testStickyTurnsOfALostWorker},
		{"TurnsAreShared", testTurnsAreShared},
		{"BusyPullerHoardsNothing", testBusyPullerHoardsNothing},
		{"NextEndsWithContext", testNextEndsWithContext},
		{"CancelledNextLosesNothing", testCancelledNextLosesNothing},
		{"CancelledNextsLoseNothing", testCancelledNextsLoseNothing},
		{"CloseEndsNext", testCloseEndsNext},
		{"QueueCloseEndsNext", testQueueCloseEndsNext},
		{"ClosedBus", testClosedBus},
		{"Watch", testWatch},
		{"WatchAll", testWatchAll},
		{"WatchDeleted", testWatchDeleted},
		{"Watchers", testWatchers},
		{"Feed", testFeed},
		{"WatchStops", testWatchStops},
		{"Aborts", testAborts},
		{"AbortsStop", testAbortsStop},
		{"Submissions", testSubmissions},
		{"DeadLetters", testDeadLetters},
		{"DeadLettersOfTenants", testDeadLettersOfTenants},
		{"PurgeOfManyLetters", testPurgeOfManyLetters},
		{"Membership", testMembership},
		{"Ready", testReady},
		{"Objects", testObjects},
		{"ObjectsAborted", testObjectsAborted},
	}
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			t.Parallel()
			topic.test(t, open(t))
		})
	}
}

func newID() state.RunID { return state.RunID(state.RunPrefix + ulid.Make().String()) }

func publish(t *testing.T, b bus.Bus, turn bus.Turn, id string) {
	t.Helper()
	if turn.Priority == "" {
		turn.Priority = state.Normal
	}
	// The server of a busy machine may answer too late. The bus stores one message per id.
	limit := time.After(soon)
	for err := b.PublishTurn(t.Context(), turn, id); err != nil; err = b.PublishTurn(t.Context(), turn, id) {
		t.Logf("PublishTurn: %v", err)
		select {
		case <-limit:
			t.Fatal("PublishTurn does not succeed")
		default:
		}
	}
}

var normal = bus.QueueKey{Lane: state.Normal}

func lane(t *testing.T, b bus.Bus, l bus.QueueKey) bus.TurnQueue {
	t.Helper()
	q, err := b.Turns(t.Context(), l)
	if err != nil {
		t.Fatalf("Turns: %v", err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

func next(t *testing.T, q bus.TurnQueue) bus.TurnDelivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	d, err := q.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return d
}

func nothing(t *testing.T, q bus.TurnQueue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), briefly)
	defer cancel()
	if d, err := q.Next(ctx); err == nil {
		t.Fatalf("Next = %+v, want nothing", d.Turn())
	}
}
