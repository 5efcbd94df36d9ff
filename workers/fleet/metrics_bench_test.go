package fleet_test

import (
	"testing"
	"time"

	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// BenchmarkTemporalMetrics measures what Temporal's SDK does at an activity's end: it tags a handler and times.
func BenchmarkTemporalMetrics(b *testing.B) {
	m := metrics.New("")
	h, err := fleet.TemporalMetrics(m)
	if err != nil {
		b.Fatal(err)
	}
	worker := h.WithTags(map[string]string{"namespace": "default", "task_queue": "rollout-cpu"})
	b.ReportAllocs()
	for b.Loop() {
		tagged := worker.WithTags(map[string]string{"activity_type": "RunAgent", "workflow_type": "RolloutWorkflow"})
		tagged.Timer("temporal_activity_execution_latency").Record(time.Millisecond)
	}
}
