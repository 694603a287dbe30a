package resource

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/limit"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxWait is the maximum of ?wait=.
const maxWait = 10 * time.Minute

// Waits waits for runs. *stream.Waits implements it.
type Waits interface {
	Wait(ctx context.Context, known state.State, timeout time.Duration) (st state.State, done bool, err error)
}

// Callers ends a wait when its caller loses access. *login.Callers implements it.
type Callers interface {
	WhileAllowed(r *http.Request) (ctx context.Context, stop func())
}

// Submissions creates runs.
type Submissions struct {
	submissions *service.Submissions
	waits       Waits
	quota       *limit.Quota // for requests with ?wait
	callers     Callers
}

// NewSubmissions returns the handlers of requests that create runs.
func NewSubmissions(s *service.Submissions, waits Waits, quota *limit.Quota, callers Callers) *Submissions {
	return &Submissions{submissions: s, waits: waits, quota: quota, callers: callers}
}

// Post creates a run, and responds with status 202. With ?wait it responds with status 200 once the run has ended or
// waits for anything but its own child runs, or else with status 202 and the run when the wait or the gateway ends. If
// the caller loses access or the run is deleted during the wait, Post returns an error, although it has created the
// run.
func (s *Submissions) Post(w http.ResponseWriter, r *http.Request) error {
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	caller := access.FromContext(r.Context())
	if wait > 0 {
		release, err := s.quota.Take(caller)
		if err != nil {
			return err // refuse the request before a run is created
		}
		defer release()
	}
	in := service.Submission{Key: r.Header.Get(headerKey), Trace: r.Header.Get(span.Header), Source: "http"}
	if in.Body, err = exchange.Decode(r, &in.Request); err != nil {
		return err
	}
	st, err := s.submissions.Submit(r.Context(), caller, in)
	if err != nil {
		return err
	}
	exchange.Release(r) // the wait may last minutes and does not need the body
	w.Header().Set("Location", "/v1/runs/"+string(st.ID))
	status := http.StatusAccepted
	if wait > 0 {
		ctx, stop := s.callers.WhileAllowed(r)
		defer stop()
		now, done, err := s.waits.Wait(ctx, st, wait)
		if err != nil && r.Context().Err() == nil {
			return err
		}
		if err == nil {
			st = now
		}
		if done {
			status = http.StatusOK
		}
	}
	return exchange.Reply(w, status, api.RunOf(st, time.Now()))
}

func waitOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if seconds, numErr := strconv.Atoi(text); numErr == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d < 0 || d > maxWait {
		return 0, exchange.Invalid("wait is %q: give a duration of at most %s, such as 30s", text, maxWait)
	}
	return d, nil
}

// Fork creates a run that shares the history of another run up to a turn.
func (s *Submissions) Fork(w http.ResponseWriter, r *http.Request) (err error) {
	in := service.Forking{Run: r.PathValue("id"), Key: r.Header.Get(headerKey), Trace: r.Header.Get(span.Header)}
	if in.Body, err = exchange.Decode(r, &in.Request); err != nil {
		return err
	}
	st, err := s.submissions.Fork(r.Context(), access.FromContext(r.Context()), in)
	return created(w, st, err)
}

// Draft creates a run of a definition that is not stored as an agent.
func (s *Submissions) Draft(w http.ResponseWriter, r *http.Request) (err error) {
	var req api.DraftRequest
	in := service.Submission{Key: r.Header.Get(headerKey), Trace: r.Header.Get(span.Header)}
	if in.Body, err = exchange.Decode(r, &req); err != nil {
		return err
	}
	st, err := s.submissions.SubmitDraft(r.Context(), access.FromContext(r.Context()), req, in)
	return created(w, st, err)
}

// Batch creates the runs of a batch.
func (s *Submissions) Batch(w http.ResponseWriter, r *http.Request) (err error) {
	in := service.Submission{Key: r.Header.Get(headerKey), Trace: r.Header.Get(span.Header), Source: "http"}
	if in.Body, err = exchange.ReadBody(r); err != nil {
		return err
	}
	b, err := s.submissions.SubmitBatch(r.Context(), access.FromContext(r.Context()), in)
	if err == nil {
		w.Header().Set("Location", "/v1/batches/"+b.BatchID)
	}
	return reply(w, http.StatusAccepted, b, err)
}

// Batches reads batches.
type Batches struct{ batches *service.Batches }

// NewBatches returns the handlers of batches.
func NewBatches(b *service.Batches) *Batches { return &Batches{b} }

// Get responds with a batch and a page of its runs.
func (b *Batches) Get(w http.ResponseWriter, r *http.Request) error {
	p, err := exchange.PageOf(r)
	if err != nil {
		return err
	}
	batch, err := b.batches.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("id"), p)
	return reply(w, http.StatusOK, batch, err)
}

// List responds with a page of batches.
func (b *Batches) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, b.batches.List)
}
