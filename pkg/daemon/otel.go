package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// scope names the source of our spans and instruments.
const scope = "github.com/posthouse-io/posthouse"

// telemetry is the way of spans and measurements out of the process. Its zero
// value is off.
type telemetry struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

// openTelemetry connects to nothing: the exporters do, later, and drop what a
// dead collector does not take. OTEL_EXPORTER_OTLP_HEADERS and the other
// standard variables of the exporters hold as well.
func openTelemetry(ctx context.Context, s Settings, service, instance string, log zerolog.Logger) (telemetry, error) {
	if s.OTLPEndpoint == "" {
		return telemetry{}, nil
	}
	spansTo, err := url.JoinPath(s.OTLPEndpoint, "v1/traces")
	if err != nil {
		return telemetry{}, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT: not a URL")
	}
	metricsTo, _ := url.JoinPath(s.OTLPEndpoint, "v1/metrics")
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(spansTo))
	if err != nil {
		return telemetry{}, fmt.Errorf("open the exporter of traces: %w", err)
	}
	measures, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(metricsTo))
	if err != nil {
		return telemetry{}, errors.Join(fmt.Errorf("open the exporter of metrics: %w", err), spans.Shutdown(ctx))
	}
	about := []attribute.KeyValue{
		attribute.String("service.name", "posthouse-"+service),
		attribute.String("service.instance.id", instance),
	}
	if s.OTLPNamespace != "" {
		about = append(about, attribute.String("service.namespace", s.OTLPNamespace))
	}
	res := resource.NewSchemaless(about...)
	return telemetry{
		traces: sdktrace.NewTracerProvider(sdktrace.WithResource(res),
			sdktrace.WithBatcher(tellingSpans{spans, newTeller(log)})),
		metrics: sdkmetric.NewMeterProvider(sdkmetric.WithResource(res),
			sdkmetric.WithReader(sdkmetric.NewPeriodicReader(tellingMetrics{measures, newTeller(log)}))),
	}, nil
}

func (t telemetry) tracer() trace.Tracer {
	if t.traces == nil {
		return tracenoop.NewTracerProvider().Tracer(scope)
	}
	return t.traces.Tracer(scope)
}

func (t telemetry) meter() metric.Meter {
	if t.metrics == nil {
		return metricnoop.NewMeterProvider().Meter(scope)
	}
	return t.metrics.Meter(scope)
}

// close sends what is still held. ctx must be alive: a Shutdown under an ended
// context drops the last batch, which is also why ForceFlush comes first.
func (t telemetry) close(ctx context.Context) error {
	if t.traces == nil {
		return nil
	}
	return errors.Join(
		t.traces.ForceFlush(ctx), t.metrics.ForceFlush(ctx),
		t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

// tellingSpans and tellingMetrics log a failing collector once per change; the
// SDK would hand each error to a global handler, which prints every one.
type tellingSpans struct {
	sdktrace.SpanExporter
	*teller
}

func (e tellingSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.tell("traces", "collector", e.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

type tellingMetrics struct {
	sdkmetric.Exporter
	*teller
}

func (e tellingMetrics) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	e.tell("metrics", "collector", e.Exporter.Export(ctx, m))
	return nil
}

// Inject writes the trace of ctx into the header of a message (W3C traceparent
// and tracestate). Nothing is written when ctx carries no trace.
func Inject(ctx context.Context, header nats.Header) {
	propagation.TraceContext{}.Inject(ctx, carrier(header))
}

// Extract continues the trace that a header names. A header without one, or
// with a malformed one, leaves ctx as it is.
func Extract(ctx context.Context, header nats.Header) context.Context {
	return propagation.TraceContext{}.Extract(ctx, carrier(header))
}

// carrier reads names in any case: NATS keeps the case of a header, and some
// clients write Traceparent.
type carrier nats.Header

func (c carrier) Get(key string) string {
	if v := nats.Header(c).Get(key); v != "" {
		return v
	}
	for name, values := range c {
		if strings.EqualFold(name, key) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

func (c carrier) Set(key, value string) { nats.Header(c).Set(key, value) }

func (c carrier) Keys() []string {
	names := make([]string, 0, len(c))
	for name := range c {
		names = append(names, name)
	}
	return names
}
