package traces_test

import (
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/traces"
	"github.com/fulgurite/fulgurite/store"
)

// attributeOf returns a text that a span has under a name.
func attributeOf(s *v1.Span, name string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == name {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func TestEvaluationsOfTwoPoliciesAreTwoTraces(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := store.Open(ctx, filepath.Join(t.TempDir(), "runs.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(ctx))
	run, _, err := s.CreateRun(ctx, record.Run{
		Name: "pair", ExecutionID: "e", Created: time.Unix(1, 0),
		Spec: json.RawMessage(`{"policies": {"checker": {}, "writer": {"match": [{"agent": "w"}]}}, "promotion": {"alone": true}}`),
	})
	require.NoError(t, err)
	reward := 1.0
	for task := range 8 { // two of each policy, and two for the baseline of each
		a, err := s.BeginAttempt(ctx, record.RolloutID{Run: "pair", Kind: record.Gate, Step: 4, Task: task}, "t", record.Terms{Policy: model.DefaultPolicy, Version: 4}, "c")
		require.NoError(t, err)
		require.NoError(t, s.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
	}
	reader, err := traces.NewReader(s, "store", run)
	require.NoError(t, err)
	ids := map[string]string{}
	for policy, want := range map[string][]string{
		"checker": {"pair/gate-4/0/0/1", "pair/gate-4/1/0/1", "pair/gate-4/4/0/1", "pair/gate-4/5/0/1"},
		"writer":  {"pair/gate-4/2/0/1", "pair/gate-4/3/0/1", "pair/gate-4/6/0/1", "pair/gate-4/7/0/1"},
	} {
		spans, err := reader.Evaluation(ctx, record.Evaluation{
			Run: "pair", Policy: policy, At: time.Unix(9, 0), EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: 4, Tasks: 2, Rollouts: 2},
		})
		require.NoError(t, err)
		require.Equal(t, policy, attributeOf(spans[0], "fulgurite.policy"))
		var attempts []string
		for _, span := range spans {
			require.Equal(t, spans[0].GetTraceId(), span.GetTraceId())
			if span.GetName() == "rl.sample" {
				attempts = append(attempts, attributeOf(span, "fulgurite.attempt"))
			}
		}
		require.ElementsMatch(t, want, attempts)
		ids[hex.EncodeToString(spans[0].GetTraceId())] = policy
	}
	require.Len(t, ids, 2)
}
