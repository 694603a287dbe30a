package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/gateway/server"
)

// Admin is the listener for those who run a process: its metrics, liveness, readiness and
// profiles.
type Admin struct {
	Addr        string // none without
	Hosts       []string
	Certificate *Certificate
	Registry    *prometheus.Registry
	Ready       func(context.Context) error
	Readyz      http.Handler // answers /readyz in place of Ready; may be nil
	Log         *slog.Logger
}

const (
	// readyTimeout bounds one answer of /readyz.
	readyTimeout = 3 * time.Second

	adminTimeout = 2 * time.Minute

	// maxProfile bounds the time of a profile, in seconds.
	maxProfile = 60

	maxAdminHeader = 64 << 10
)

// Beside calls work, and serves until work has returned: operators also see how a process ends. If Beside cannot serve,
// it ends the context of work.
func (a Admin) Beside(ctx context.Context, work func(context.Context) error) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stop()
		return work(working)
	})
	group.Go(func() error { return a.Serve(serving) })
	return group.Wait()
}

// Serve serves until ctx ends. Without an address it only waits.
func (a Admin) Serve(ctx context.Context) error {
	if a.Addr == "" {
		<-ctx.Done()
		return nil
	}
	if err := server.CheckHosts(a.Hosts); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", a.Addr)
	if err != nil {
		return fmt.Errorf("serve /metrics, /healthz and /readyz: %w: choose another address with TURNPIKE_ADMIN_ADDR (gateway) or TURNPIKE_METRICS_ADDR (worker, turnpike dev)", err)
	}
	srv := &http.Server{
		Handler: a.handler(), ErrorLog: server.ConnectionLog(a.Log), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: adminTimeout, IdleTimeout: adminTimeout, MaxHeaderBytes: maxAdminHeader,
	}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(a.Certificate.Wrap(listener)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (a Admin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if a.Readyz != nil {
			a.Readyz.ServeHTTP(w, r)
			return
		}
		within, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := a.Ready(within); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	// Without /debug/pprof/cmdline: a command line may have passwords.
	profiles := http.NewServeMux()
	profiles.HandleFunc("/debug/pprof/", pprof.Index)
	profiles.HandleFunc("/debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	profiles.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("/debug/", ofThisMachine(profiles))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", server.StrictTransport)
		}
		if !server.KnownHost(r, a.Hosts) {
			http.Error(w, fmt.Sprintf("host %.100q is not allowed: add its name, without the port, to TURNPIKE_HOSTS", r.Host), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ofThisMachine serves callers from loopback only, for a minute at most: a profile costs
// the process time, and reveals its internals.
func ofThisMachine(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
			http.Error(w, "profiles can be read only on the machine of this process: forward a port to its loopback address, for example with kubectl port-forward", http.StatusForbidden)
			return
		}
		if text := r.FormValue("seconds"); text != "" {
			if seconds, err := strconv.ParseFloat(text, 64); err != nil || !(seconds >= 0 && seconds <= maxProfile) {
				http.Error(w, fmt.Sprintf("seconds is %.40q: give a number from 0 to %d", text, maxProfile), http.StatusBadRequest)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}
