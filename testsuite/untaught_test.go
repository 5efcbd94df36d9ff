package testsuite_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/sdk/v1"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/spec"
)

// Temporal's Web UI shows the details of a workflow.
func TestThreeStepsThatTeachNothingShowInTemporal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	wrong := agent.Registry{"wrong": func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		_, err := calculate(ctx, task, env)
		return "no number", err
	}}
	st := startWith(ctx, t, t.TempDir(), wrong)
	defer func() { require.NoError(t, st.Close()) }()
	for steps, says := range map[int]bool{2: false, 3: true} {
		s := tiny(spec.Agent{Func: "wrong"})
		s.Model.WarmStart = nil
		s.Training.Steps, s.Sampling.MaxTokens = steps, 4
		name := map[int]string{2: "short", 3: "long"}[steps]
		mustTrain(ctx, t, st, name, s)
		shown, err := st.Client.QueryWorkflow(ctx, name, "", "__temporal_workflow_metadata")
		require.NoError(t, err)
		var about sdk.WorkflowMetadata
		require.NoError(t, shown.Get(&about))
		if says {
			require.Contains(t, about.CurrentDetails, "Warning: the last 3 steps (1 to 3) taught nothing: no token got an advantage.")
			require.Contains(t, about.CurrentDetails, "every reward was 0")
		} else {
			require.NotContains(t, about.CurrentDetails, "Warning")
		}
	}
}
