package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

func step(n int, trained, advantage, reward float64) record.Step {
	return record.Step{Step: n, Metrics: map[string]float64{
		"batch/trained_tokens": trained, "advantage/min": -advantage, "advantage/max": advantage, "reward/min": 0, "reward/max": reward,
		"batch/rollouts": 8, "batch/failed": 1, "batch/calls": 9, "batch/cut_off": 4, "batch/unparsed": 5,
	}}
}

func TestThreeStepsThatTeachNothingAreAWarning(t *testing.T) {
	t.Parallel()
	flat := []record.Step{step(1, 9, 1, 1), step(2, 9, 0, 0), step(3, 9, 0, 0)}
	require.Empty(t, record.UntaughtBy(flat).Text(), "two are nothing unusual")
	flat = append(flat, step(4, 9, 0, 0))
	require.Equal(t, "the last 3 steps (2 to 4) taught nothing: no token got an advantage. Of 24 attempts: the agent failed in 3; "+
		"12 of 27 replies were cut off (raise sampling.max_tokens); 15 of 27 replies could not be parsed; every reward was 0 (does the grader find what the agent returns?)",
		record.UntaughtBy(flat).Text())
	require.Contains(t, record.UntaughtBy(append(flat, step(5, 9, 0, 1))).Text(), "the rewards went from 0 to 1, but did not differ within a group")
	require.Zero(t, record.UntaughtBy(append(flat, step(5, 9, 1, 1))), "a step that teaches ends the row")
	require.Zero(t, record.UntaughtBy([]record.Step{{Step: 1}}), "a step without these metrics says nothing")
}

func TestAStepWithoutATokenToTrainIsAWarningAtOnce(t *testing.T) {
	t.Parallel()
	require.Contains(t, record.UntaughtBy([]record.Step{step(1, 0, 0, 1)}).Text(), "step 1 had no token to train, so its version is the one before without an update. Of 8 attempts: ")
	require.Empty(t, record.UntaughtBy([]record.Step{step(1, 0, 0, 1), step(2, 5, 0, 0)}).Text())
}
