package webhook_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// pending returns the pending events of the tenant acme, by run.
func (f *fixture) pending() (events []api.PendingEvent) {
	f.Helper()
	timers, err := f.store.ListTimers(f.Context(), "acme", webhook.Kind, "", 1000)
	if err != nil {
		f.Fatal(err)
	}
	for _, timer := range timers {
		e, exists, err := webhook.Pending(f.Context(), f.store, "acme", timer)
		if err != nil {
			f.Fatal(err)
		}
		if exists {
			events = append(events, e)
		}
	}
	return events
}

// A postponed event has the reason, the number of attempts and the latest error.
func TestPendingReasons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(_ int, r *http.Request) int {
			if r.URL.Host == "silent.example" {
				return 0
			}
			return http.StatusServiceUnavailable
		}
		two := f.run(first, "https://one.example/", state.EntryWaiting, state.EntryFinished)
		waiting := &state.Wait{Reason: state.WaitingApproval, Since: state.At(time.Now()), Calls: []state.WaitCall{}}
		f.move(two.ID, state.WaitingApproval, state.Entry{Waiting: waiting})
		if err := f.store.PutTimer(t.Context(), webhook.Timer(two, 2), time.Now()); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			f.end(f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFQQQQ%04d", i), "https://silent.example/").ID, "done")
		}
		if all := f.pending(); len(all) != 21 || all[0].Reason != api.PendingFirstAttempt || all[0].Type != "run.waiting" || all[0].Attempts != 0 || !all[0].LastAttemptAt.IsZero() {
			t.Errorf("before the first attempt: %+v", all)
		}
		sender := f.sender()
		f.work(10*time.Second, sender)
		reasons := map[api.PendingReason]int{}
		for _, e := range f.pending() {
			reasons[e.Reason]++
			if (e.Reason == api.PendingFailed) != (e.Attempts > 0) || (e.LastError == "") != e.LastAttemptAt.IsZero() {
				t.Errorf("after ten seconds: %+v", e)
			}
		}
		if reasons[api.PendingFailed] != 1 || reasons[api.PendingBusy] == 0 {
			t.Errorf("after ten seconds: %v", reasons)
		}
		f.work(2*time.Minute, sender)
		failing := 0
		for _, e := range f.pending() {
			if e.Reason == api.PendingReceiverFailing {
				failing++
				if e.Host != "silent.example:443" || e.Attempts > 0 && e.LastError != "the receiver did not answer within 15s" {
					t.Errorf("after two minutes: %+v", e)
				}
			}
		}
		if failing == 0 {
			t.Errorf("after two minutes no event waits for a failing receiver: %+v", f.pending())
		}
	})
}

// A later event of a run waits for the earlier one.
func TestPendingEarlierEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(int, *http.Request) int { return http.StatusServiceUnavailable }
		s := f.run(first, "https://one.example/")
		f.end(s.ID, "done")
		say := state.UserText("go on")
		if _, err := f.store.Signal(t.Context(), s.ID, state.Signal{ID: "1", Message: &say}, time.Hour); err != nil {
			t.Fatal(err)
		}
		f.move(s.ID, state.UserMessage, state.Entry{Messages: []state.Message{say}})
		f.end(s.ID, "done again")
		f.work(time.Minute, f.sender())
		all := f.pending()
		if len(all) != 2 || all[0].Reason != api.PendingFailed || all[0].Attempts == 0 || all[1].Reason != api.PendingEarlierEvent || all[1].Attempts != 0 || all[1].LastError != "" {
			t.Errorf("pending: %+v", all)
		}
	})
}

// A worker that dies within an attempt leaves the results of earlier attempts, and the next worker counts on
// from them.
func TestPendingAfterKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(int, *http.Request) int { return http.StatusServiceUnavailable }
		f.end(f.run(first, "https://one.example/").ID, "done")
		f.work(30*time.Second, f.sender())
		was := f.pending()[0]
		time.Sleep(time.Until(was.NextAttemptAt.Time)) // the bubble's clock
		if claims, err := f.store.ClaimTimers(t.Context(), webhook.Kind, 9, 30*time.Second); err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		f.work(10*time.Second, f.sender())
		if now := f.pending()[0]; now != was {
			t.Errorf("while the claim of a dead worker lasts: %+v, want %+v", now, was)
		}
		f.work(30*time.Second, f.sender())
		if now := f.pending()[0]; now.Attempts != was.Attempts+1 || !now.LastAttemptAt.After(was.LastAttemptAt.Time) || !now.NextAttemptAt.After(was.NextAttemptAt.Time) {
			t.Errorf("after it: %+v, before: %+v", now, was)
		}
	})
}

// The last error of an event contains no address of the worker's network and nothing from the receiver's
// response.
func TestLastError(t *testing.T) {
	t.Parallel()
	inside := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 443}
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: inside, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for want, err := range map[string]error{
		"dial: connect: connection refused":                                refused,
		"dial: connect: connection refused ":                               &net.OpError{Op: "proxyconnect", Net: "tcp", Err: refused},
		"read: connection reset by peer":                                   &net.OpError{Op: "read", Net: "tcp", Source: inside, Addr: inside, Err: syscall.ECONNRESET},
		"the DNS lookup of the host failed: no such host":                  &net.DNSError{Err: "no such host", Name: "one.example", Server: "10.0.0.2:53", IsNotFound: true},
		"net/http: malformed HTTP response …":                              errors.New(`net/http: malformed HTTP response "hush"`),
		"the receiver's TLS certificate is for another host":               x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"hush.internal"}}, Host: "one.example"},
		"the receiver's TLS certificate is signed by an unknown authority": x509.UnknownAuthorityError{},
		"red [31m and reversed":                                            errors.New("red\x1b[31m\nand\u202ereversed\u2028"),
		"long " + strings.Repeat("ä", 125):                                 errors.New("long " + strings.Repeat("ä", 4000)),
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			f.receiver.err, f.receiver.answer = err, func(int, *http.Request) int { return -1 }
			f.end(f.run(first, "https://one.example/").ID, "done")
			f.work(2*time.Second, f.sender())
			if all := f.pending(); len(all) != 1 || all[0].LastError != strings.TrimSpace(want) {
				t.Errorf("pending: %+v, want the error %q", all, want)
			}
		})
	}
}

// Errors about the tenant's own rights and secrets are shown unchanged.
func TestLastErrorOfTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.end(f.run(first, "https://refused.example/").ID, "done")
		f.work(2*time.Second, f.sender())
		if all := f.pending(); len(all) != 1 || all[0].LastError != "the tenant may not reach refused.example:443" {
			t.Errorf("pending: %+v", all)
		}
	})
}
