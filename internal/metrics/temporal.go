package metrics

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
)

// latencies are the bounds of Temporal's timers, in seconds: from calls of the server to
// rollouts of an hour.
var latencies = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}

// Temporal returns what counts and times the work of Temporal's client and workers, among
// it how long tasks waited in their queues. It is called once.
func (m *Metrics) Temporal() (client.MetricsHandler, error) {
	exporter, err := prometheus.New(prometheus.WithRegisterer(m.registry), prometheus.WithoutScopeInfo(), prometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("export Temporal's metrics: %w", err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter), metric.WithView(func(i metric.Instrument) (metric.Stream, bool) {
		return metric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit, Aggregation: metric.AggregationExplicitBucketHistogram{Boundaries: latencies}},
			i.Kind == metric.InstrumentKindHistogram && strings.HasPrefix(i.Name, "temporal_")
	}))
	return opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
		Meter: provider.Meter("temporal-sdk"), UseMonotonicCounters: true, OnError: func(error) {}, // a metric that can't be made is left out
	}), nil
}
