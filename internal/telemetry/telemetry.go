// Package telemetry exports the spans and the GenAI metrics of a process with OTLP,
// configured by the standard OTEL_* variables.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/internal/build"
)

// flushTimeout bounds how long a process that ends waits for a collector.
const flushTimeout = 5 * time.Second

// contentBatch is the number of spans in a request if spans contain messages, so that
// a request stays below the 4 MiB that collectors accept.
const contentBatch = 24

// Settings are the tracing settings from the environment. The zero value means no
// traces.
type Settings struct {
	// Protocol is grpc, http/protobuf or http/json; empty exports nothing.
	Protocol string

	// Content reports that spans contain messages. It is false by default: prompts,
	// answers, arguments and results are people's data.
	Content bool
}

// FromEnv reads the settings. Spans are exported if OTEL_TRACES_EXPORTER is otlp, or if it is not set and an endpoint
// is, unless OTEL_SDK_DISABLED is true. OpenTelemetry itself reads the other OTEL_* variables (endpoints, headers,
// certificates, sampler, limits). The error names a variable with an invalid value.
func FromEnv(getenv func(string) string) (Settings, error) {
	protocol, err := exported(getenv, "TRACES")
	if err != nil || protocol == "" {
		return Settings{}, err
	}
	s := Settings{Protocol: protocol}
	name, v := first(getenv, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
	switch strings.ToLower(v) {
	case "true", "span_only", "span_and_event":
		s.Content = true
	case "", "false", "no_content", "event_only":
	default:
		return Settings{}, fmt.Errorf("%s is %q: set true or false", name, v)
	}
	return s, nil
}

// exported returns the protocol for exporting a signal, TRACES or METRICS, or "" if it is not exported.
// elsewhere lists further values of the exporter variable that export nothing.
func exported(getenv func(string) string, signal string, elsewhere ...string) (protocol string, err error) {
	_, disabled := first(getenv, "OTEL_SDK_DISABLED")
	asked, exporter := first(getenv, "OTEL_"+signal+"_EXPORTER")
	variable, endpoint := first(getenv, "OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if strings.EqualFold(disabled, "true") || slices.Contains(append(elsewhere, "none"), exporter) || exporter == "" && endpoint == "" {
		return "", nil
	}
	if exporter != "" && exporter != "otlp" {
		return "", fmt.Errorf("%s is %q: set otlp to export %s, or none", asked, exporter, strings.ToLower(signal))
	}
	protocol = "http/protobuf"
	if name, v := first(getenv, "OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); v != "" {
		if protocol = v; v != "grpc" && v != "http/protobuf" && v != "http/json" {
			return "", fmt.Errorf("%s is %q: set grpc, http/protobuf or http/json", name, v)
		}
	}
	// The exporter would go to localhost where it cannot read the address. The value
	// is not repeated: it may hold a password.
	if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("%s is not an http or https URL: set one such as http://collector:4318", variable)
	}
	return protocol, nil
}

// first returns the first of the variables that is set, with its value; both are empty if none is.
func first(getenv func(string) string, names ...string) (name, value string) {
	for _, name := range names {
		if v := strings.TrimSpace(getenv(name)); v != "" {
			return name, v
		}
	}
	return "", ""
}

// Exporter sends spans to a collector.
type Exporter struct {
	provider *sdktrace.TracerProvider
	log      *slog.Logger

	// Content is as in Settings.
	Content bool
}

// Start begins to export the spans of a service, whose name OTEL_SERVICE_NAME overrides. It returns nil, without an
// error, if the environment does not enable traces. It does not wait for the collector, and drops spans that the
// collector does not accept: a run never waits for its trace. If it returns an Exporter, it has set the error handler
// of OpenTelemetry in this process, and the caller must call Close.
func Start(ctx context.Context, service string, log *slog.Logger) (*Exporter, error) {
	settings, err := FromEnv(os.Getenv)
	if err != nil || settings.Protocol == "" {
		return nil, err
	}
	client := otlptracehttp.NewClient()
	if settings.Protocol == "grpc" {
		client = otlptracegrpc.NewClient()
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("start the export of traces: %w: correct the environment variables that begin with OTEL_EXPORTER_OTLP_", err)
	}
	of, err := about(ctx, service)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the export of traces: %w", err), exporter.Shutdown(ctx))
	}
	var batch []sdktrace.BatchSpanProcessorOption
	if n, _ := strconv.Atoi(os.Getenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")); settings.Content && n == 0 {
		batch = append(batch, sdktrace.WithMaxExportBatchSize(contentBatch))
	}
	// The provider is not made the global one: the SDKs of model providers would
	// begin to make spans of their own, of the same calls and with content.
	complain(log)
	log.Info("traces are exported", "protocol", settings.Protocol, "content", settings.Content)
	return &Exporter{
		provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, batch...), sdktrace.WithResource(of)),
		log:      log, Content: settings.Content,
	}, nil
}

// Provider returns the provider whose spans are exported.
func (e *Exporter) Provider() trace.TracerProvider { return e.provider }

// Close sends the remaining spans, and waits for the collector for up to five seconds.
func (e *Exporter) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		e.log.Warn("last spans not exported", "error", err, "hint", exportHint)
	}
}

// about returns the attributes that describe this process to a collector.
func about(ctx context.Context, service string) (*resource.Resource, error) {
	of, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", build.Version())),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv(),
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("the host name or OTEL_RESOURCE_ATTRIBUTES cannot be read (%w): check that this machine has a host name, and write OTEL_RESOURCE_ATTRIBUTES as key=value,key=value", err)
	}
	return of, nil
}

// exportHint is the hint for figures and spans that were not sent.
const exportHint = "check that the collector at OTEL_EXPORTER_OTLP_ENDPOINT, or at the endpoint for traces or metrics, is reachable and accepts OTEL_EXPORTER_OTLP_HEADERS"

// complain makes OpenTelemetry log what could not be sent.
func complain(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces or metrics not exported", "error", err, "hint", exportHint)
	}))
}
