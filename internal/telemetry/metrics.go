package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	prometheusexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// Meters makes metrics in a Prometheus registry, and also sends them to a collector if the environment names
// one.
type Meters struct {
	provider *sdkmetric.MeterProvider
	log      *slog.Logger
}

// StartMeters starts the metrics of a service, whose name OTEL_SERVICE_NAME overrides. It does not wait for the
// collector. It fails if the host name cannot be read, or if it finds a mistake in OTEL_* variables, for example in the
// exporter, the protocol or the endpoint; it ignores some others. Two calls must not share a registry: metrics of the
// same name would collide. With a collector StartMeters sets the error handler of OpenTelemetry in this process. The
// caller must call Close.
func StartMeters(ctx context.Context, service string, registry *prometheus.Registry, log *slog.Logger) (*Meters, error) {
	protocol, err := exported(os.Getenv, "METRICS", "prometheus")
	if err != nil {
		return nil, err
	}
	scraped, err := prometheusexporter.New(prometheusexporter.WithRegisterer(registry), prometheusexporter.WithoutScopeInfo(), prometheusexporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	of, err := about(ctx, service)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	options := []sdkmetric.Option{sdkmetric.WithReader(scraped), sdkmetric.WithResource(of)}
	if protocol != "" {
		var exporter sdkmetric.Exporter
		if protocol == "grpc" {
			exporter, err = otlpmetricgrpc.New(ctx)
		} else {
			exporter, err = otlpmetrichttp.New(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("start the export of metrics: %w: correct the environment variables that begin with OTEL_EXPORTER_OTLP_", err)
		}
		complain(log)
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
		log.Info("metrics are exported", "protocol", protocol)
	}
	return &Meters{sdkmetric.NewMeterProvider(options...), log}, nil
}

// Provider returns the provider through which code makes the metrics.
func (m *Meters) Provider() metric.MeterProvider { return m.provider }

// Close sends the last figures, and waits for the collector for up to five seconds.
func (m *Meters) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := m.provider.Shutdown(ctx); err != nil && !errors.Is(err, sdkmetric.ErrReaderShutdown) {
		m.log.Warn("last metrics not exported", "error", err, "hint", exportHint)
	}
}
