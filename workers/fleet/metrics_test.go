package fleet_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestTemporalsMetricsAreShownBesideOurs(t *testing.T) {
	t.Parallel()
	m := metrics.New("1.2.3")
	h, err := fleet.TemporalMetrics(m)
	require.NoError(t, err)
	for _, queue := range []string{"rollout-cpu", "other"} {
		tagged := h.WithTags(map[string]string{"task_queue": queue, "namespace": "default"})
		for range 2 {
			tagged.Timer("temporal_activity_schedule_to_start_latency").Record(3 * time.Second)
			tagged.Counter("temporal_workflow_completed").Inc(2)
			tagged.Gauge("temporal_worker_task_slots_used").Update(5)
		}
	}
	h.Counter("temporal_workflow_completed").Inc(1)
	w := httptest.NewRecorder()
	fleet.MetricsHandler(m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, fleet.MetricsPath, nil))
	text := w.Body.String()
	for _, queue := range []string{"rollout-cpu", "other"} {
		labels := `namespace="default",task_queue="` + queue + `"`
		require.Contains(t, text, "\ntemporal_activity_schedule_to_start_latency_seconds_bucket{"+labels+`,le="5"} 2`)
		require.Contains(t, text, "\ntemporal_workflow_completed_total{"+labels+"} 4\n")
		require.Contains(t, text, "\ntemporal_worker_task_slots_used{"+labels+"} 5\n")
	}
	require.Contains(t, text, "\ntemporal_workflow_completed_total 1\n")
	require.Equal(t, 1, strings.Count(text, "# TYPE fulgurite_build_info"))
}
