package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"

	"github.com/fulgurite/fulgurite/internal/metrics"
)

// latencies are the bounds of Temporal's timers, in seconds. Calls of the server take
// milliseconds, and rollouts may take an hour.
var latencies = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}

// MetricsPath is where a process shows its metrics.
const MetricsPath = "/metrics"

// MetricsHandler shows metrics at MetricsPath.
func MetricsHandler(m *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+MetricsPath, promhttp.HandlerFor(m.Registry(), promhttp.HandlerOpts{Registry: m.Registry(), ErrorHandling: promhttp.ContinueOnError}))
	return mux
}

// TemporalMetrics returns a handler that counts and times the work of Temporal's client and
// workers. It also times how long tasks wait in their queues. A process makes one.
func TemporalMetrics(m *metrics.Metrics) (client.MetricsHandler, error) {
	exporter, err := prometheus.New(prometheus.WithRegisterer(m.Registry()), prometheus.WithoutScopeInfo(), prometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("export Temporal's metrics: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithView(func(i sdkmetric.Instrument) (sdkmetric.Stream, bool) {
		return sdkmetric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit, Aggregation: sdkmetric.AggregationExplicitBucketHistogram{Boundaries: latencies}},
			i.Kind == sdkmetric.InstrumentKindHistogram && strings.HasPrefix(i.Name, "temporal_")
	}))
	return &cachedMetrics{MetricsHandler: opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
		Meter: provider.Meter("temporal-sdk"), UseMonotonicCounters: true, OnError: func(error) {}, // a metric that can't be made is left out
	})}, nil
}

// cachedMetrics makes each handler, counter, gauge and timer of another handler once. Temporal's SDK
// asks for them at every event, and making them costs more than counting.
type cachedMetrics struct {
	client.MetricsHandler
	tagged, counters, gauges, timers sync.Map // by tags or name
}

// once returns the value of a key, which it makes at the first time.
func once[T any](all *sync.Map, key string, create func() T) T {
	v, ok := all.Load(key)
	if !ok {
		v, _ = all.LoadOrStore(key, create())
	}
	return v.(T)
}

// WithTags implements client.MetricsHandler.
func (c *cachedMetrics) WithTags(tags map[string]string) client.MetricsHandler {
	names := make([]string, 0, 8)
	for name := range tags {
		names = append(names, name)
	}
	slices.Sort(names)
	key := make([]byte, 0, 128)
	for _, name := range names {
		key = append(append(append(append(key, name...), 0), tags[name]...), 0)
	}
	return once(&c.tagged, string(key), func() *cachedMetrics { return &cachedMetrics{MetricsHandler: c.MetricsHandler.WithTags(tags)} })
}

// Counter implements client.MetricsHandler.
func (c *cachedMetrics) Counter(name string) client.MetricsCounter {
	return once(&c.counters, name, func() client.MetricsCounter { return c.MetricsHandler.Counter(name) })
}

// Gauge implements client.MetricsHandler.
func (c *cachedMetrics) Gauge(name string) client.MetricsGauge {
	return once(&c.gauges, name, func() client.MetricsGauge { return c.MetricsHandler.Gauge(name) })
}

// Timer implements client.MetricsHandler.
func (c *cachedMetrics) Timer(name string) client.MetricsTimer {
	return once(&c.timers, name, func() client.MetricsTimer { return c.MetricsHandler.Timer(name) })
}
