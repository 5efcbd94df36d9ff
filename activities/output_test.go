package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

func TestWhatAnAgentPrintedIsOnRecordHoweverItEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script  string
		outcome trace.Outcome
		want    trace.Output
	}{
		"well":     {`echo thinking; echo 42; echo a remark >&2`, trace.Completed, trace.Output{Stdout: "thinking\n42\n", Stderr: "a remark\n", LinesBefore: 1}},
		"failed":   {`echo thinking; echo why >&2; exit 3`, trace.AgentFailed, trace.Output{Stdout: "thinking\n", Stderr: "why\n"}},
		"by fault": {`echo thinking; kill -9 $$`, trace.InfraFault, trace.Output{Stdout: "thinking\n"}},
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
			require.Equal(t, c.outcome == trace.InfraFault, err != nil, "%v", err)
			require.Equal(t, c.outcome, w.attempt(at(in, 1)).Outcome)
			got, err := w.store.Output(t.Context(), at(in, 1))
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
