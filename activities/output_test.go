package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

func TestWhatAnAgentPrintedIsOnRecordHoweverItEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script  string
		outcome record.Outcome
		want    record.Output
	}{
		"well":     {`echo thinking; echo 42; echo a remark >&2`, record.OutcomeCompleted, record.Output{Stdout: "thinking\n42\n", Stderr: "a remark\n", LinesBefore: 1}},
		"failed":   {`echo thinking; echo why >&2; exit 3`, record.AgentFailed, record.Output{Stdout: "thinking\n", Stderr: "why\n"}},
		"by fault": {`echo thinking; kill -9 $$`, record.InfraFault, record.Output{Stdout: "thinking\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			s.Agent = spec.Agent{Command: []string{"sh", "-c", c.script}, FailureReward: -0.5}
			w.start(s)
			runner := w.runner(w.serve(w.gateway()), nil)
			runner.Launchers = commands(w.dir)
			in := rollout(0, 0)
			_, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
			require.Equal(t, c.outcome == record.InfraFault, err != nil, "%v", err)
			require.Equal(t, c.outcome, w.attempt(at(in, 1)).Outcome)
			got, err := w.store.Output(t.Context(), at(in, 1))
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
