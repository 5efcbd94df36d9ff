package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

func TestAStepThatTemporalCannotHoldIsRefused(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		training spec.Training
		says     string
	}{
		"groups":                   {spec.Training{TasksPerStep: 5001}, "training.tasks_per_step: 5001 is not possible"},
		"samples":                  {spec.Training{SamplesPerTask: 1001}, "training.samples_per_task: 1001 is not possible"},
		"rollouts":                 {spec.Training{TasksPerStep: 500, SamplesPerTask: 101}, "training.tasks_per_step: 50500 rollouts a step"},
		"groups that overlap":      {spec.Training{TasksPerStep: 2000, Lag: 2}, "training.tasks_per_step: 6000 groups at once"},
		"groups that are replaced": {spec.Training{TasksPerStep: 2600, DynamicSampling: 2600}, "training.tasks_per_step: 5200 groups at once"},
		"the most groups":          {spec.Training{TasksPerStep: 5000}, ""},
		"the most samples":         {spec.Training{TasksPerStep: 50, SamplesPerTask: 1000}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of.training.Steps = 1
			err := spec.Spec{
				Agent: spec.Agent{Func: "f"}, Tasks: spec.Tasks{Train: "arithmetic:train"}, Grader: spec.Grader{Type: "exact"}, Training: of.training,
			}.WithDefaults().Check()
			if of.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, of.says)
		})
	}
}
