package effect

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/turnpike-dev/turnpike/internal/engine/series"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// meters are the client metrics of the OpenTelemetry conventions for generative AI, with the buckets of
// the conventions.
type meters struct {
	seconds metric.Float64Histogram
	tokens  metric.Int64Histogram

	known model.Prices
	limit *series.Limiter
}

// maxModels bounds the models without a known price, and addresses of models, that have metrics
// of their own in one worker.
const maxModels = 32

// newMeters returns nil, which records no metrics, if meter is nil. Models in known always have metrics of
// their own.
func newMeters(meter metric.Meter, known model.Prices) (*meters, error) {
	if meter == nil {
		return nil, nil //nolint:nilnil // nil makes none
	}
	seconds, err := meter.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"), metric.WithDescription("Model calls, retries included."),
		metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	tokens, failed := meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"), metric.WithDescription("Tokens of a model call, by type."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	return &meters{seconds, tokens, known, series.New(maxModels)}, errors.Join(err, failed)
}

// attributes returns the labels of the model of a call. Tenants choose names and addresses of models: all
// beyond maxModels share one label.
func (m *meters) attributes(tenant string, of *agent.Model) []attribute.KeyValue {
	set := asked(of)
	if _, known := m.known[of.Name]; known && of.BaseURL == "" {
		return set
	}
	own := attribute.NewSet(set...)
	if m.limit.Admit(tenant, own.Encoded(attribute.DefaultEncoder())) {
		return set
	}
	return []attribute.KeyValue{span.OperationName.String("chat"), span.ProviderName.String(providerName(of.Provider)), span.RequestModel.String(series.Other)}
}

// failed records a model call without a response, with the class of its error.
func (m *meters) failed(ctx context.Context, tenant string, of *agent.Model, took time.Duration, class model.Class) {
	if m != nil {
		m.seconds.Record(ctx, took.Seconds(), metric.WithAttributes(append(m.attributes(tenant, of), span.ErrorType.String(string(class)))...))
	}
}

// responded records a model call with a response. Input tokens include cached ones. Token types that the
// provider does not count are not recorded.
func (m *meters) responded(ctx context.Context, tenant string, of *agent.Model, took time.Duration, u state.Usage) {
	if m == nil {
		return
	}
	set := m.attributes(tenant, of)
	m.seconds.Record(ctx, took.Seconds(), metric.WithAttributes(set...))
	if u.InputTokens > 0 {
		m.tokens.Record(ctx, u.InputTokens, metric.WithAttributes(append(set[:len(set):len(set)], span.TokenType.String("input"))...))
	}
	if u.OutputTokens > 0 {
		m.tokens.Record(ctx, u.OutputTokens, metric.WithAttributes(append(set[:len(set):len(set)], span.TokenType.String("output"))...))
	}
}
