package gateway_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// idle waits until a trigger has nothing to do, and returns it.
func (s *triggered) idle(c *api.Client, name string) api.Trigger {
	s.t.Helper()
	now := s.until(c, name, func(api.TriggerStatus) bool { return true })
	last := s.lastOf(now.TriggerSettings)
	return s.until(c, name, func(st api.TriggerStatus) bool {
		return s.delivered(now, last) && *st.Pending == 0 && *st.InFlight == 0
	})
}

// lastOf returns the sequence of the last message that a trigger selects.
func (s *triggered) lastOf(settings api.TriggerSettings) (last uint64) {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), settings.Stream)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(settings.Subjects) == 0 {
		return stream.CachedInfo().State.LastSeq
	}
	for _, subject := range settings.Subjects {
		if m, err := stream.GetLastMsgForSubject(s.t.Context(), subject); err == nil {
			last = max(last, m.Sequence)
		} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
			s.t.Fatal(err)
		}
	}
	return last
}

// delivered reports whether NATS has delivered the message, or a later one, to the trigger's consumer. The
// number of pending messages lags behind the publisher's acknowledgement.
func (s *triggered) delivered(trigger api.Trigger, seq uint64) bool {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), trigger.Stream)
	if err != nil {
		return false
	}
	for c := range stream.ListConsumers(s.t.Context()).Info() {
		if strings.Contains(c.Name, "_"+trigger.Name+"_") && c.Delivered.Stream >= seq {
			return true
		}
	}
	return false
}

func (s *triggered) until(c *api.Client, name string, ok func(api.TriggerStatus) bool) (now api.Trigger) {
	s.t.Helper()
	testbed.Eventually(s.t, "trigger "+name, func() (err error) {
		if now, err = c.Trigger(s.t.Context(), name); err == nil && (now.Status.Pending == nil || !ok(now.Status)) {
			err = fmt.Errorf("pending, in flight, last error: %s", strings.Join([]string{shownCount(now.Status.Pending), shownCount(now.Status.InFlight), now.Status.LastError}, ", "))
		}
		return err
	})
	return now
}

func shownCount(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}
