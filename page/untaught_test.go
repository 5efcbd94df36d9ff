package page_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

func TestARunThatLearnsNothingSaysSoOnItsPage(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	flat := map[string]float64{"batch/trained_tokens": 64, "batch/rollouts": 8, "reward/mean": 0}
	for step := 1; step <= 3; step++ {
		body, _ := get(t, server.URL+"/runs/untaught")
		require.NotContains(t, texts(t, body), "taught nothing", "before step %d", step)
		if step == 1 {
			_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "untaught", Spec: []byte("{}")})
			require.NoError(t, err)
		}
		require.NoError(t, r.store.PutStep(t.Context(), record.Step{Run: "untaught", Policy: model.DefaultPolicy, Step: step, Metrics: flat}))
	}
	body := goldenOf(t, "untaught").get(r.serve(nil).URL, "/runs/untaught")
	require.Contains(t, texts(t, body), "taught nothing")
	require.Contains(t, texts(t, body), "24 attempts")
}
