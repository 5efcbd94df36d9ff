package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

func TestACurriculumThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	const two = "stages: [{until: {steps: 1}}, {}]"
	for curriculum, want := range map[string]string{
		"{low: 0.2}":                                       "training.curriculum.type: missing; give one of uniform, band, easiest_first, stages",
		"{type: bands}":                                    `training.curriculum.type: unknown name "bands"; did you mean band?`,
		"{type: uniform, start: 0.5}":                      "training.curriculum.start: unused key; only type easiest_first has one: remove the key",
		"{type: uniform, forget: 0.5}":                     "training.curriculum.forget: unused key",
		"{type: band, low: 0.9}":                           "training.curriculum.low: no pass rate is above 0.9 and below 0.9",
		"{type: band, low: -1}":                            "training.curriculum.low: -1 is not possible; give at least 0 and less than 1",
		"{type: band, high: 2}":                            "training.curriculum.high: 2 is not possible",
		"{type: band, explore: 1.5}":                       "training.curriculum.explore: 1.5 is not possible",
		"{type: band, forget: 1e-4}":                       "training.curriculum.forget: 0.0001 is not possible; give at least 0.001 and at most 0.9",
		"{type: band, " + two + "}":                        "training.curriculum.stages: unused key; only type stages has one",
		"{type: easiest_first, low: 0.1}":                  "training.curriculum.low: unused key",
		"{type: easiest_first, difficulty: d, forget: .1}": "training.curriculum.forget: unused key",
		"{type: stages}":                                   "training.curriculum.stages: 0 stages; give two or more",
		"{type: stages, stages: [{until: {steps: 1}}, {until: {steps: 2}}]}":                            "training.curriculum.stages[1].until: unused key; no stage comes after the last one",
		"{type: stages, stages: [{}, {}]}":                                                              "training.curriculum.stages[0].until: missing, and the next stage would never begin",
		"{type: stages, stages: [{until: {over: 3, steps: 1}}, {}]}":                                    "training.curriculum.stages[0].until.over: unused key",
		"{type: stages, stages: [{until: {evaluation: 0.5}}, {}]}":                                      "training.curriculum.stages[0].until.evaluation: there is no split to evaluate; give tasks.gate",
		"{type: stages, stages: [{name: a, until: {steps: 1}}, {name: a}]}":                             `training.curriculum.stages[1].name: "a" is given twice`,
		"{type: stages, stages: [{tasks: b.jsonl, until: {steps: 1}}, {tasks: c.jsonl}]}":               "training.curriculum.stages: no stage takes those of tasks.train",
		"{type: stages, stages: [{tasks: \"arithmetic:dev\", until: {steps: 1}}, {}]}":                  "training.curriculum.stages[0].tasks: generator",
		"{type: stages, stages: [{where: {field: d}, until: {steps: 1}}, {}]}":                          "training.curriculum.stages[0].where: no condition",
		"{type: stages, stages: [{where: {values: [a]}, until: {steps: 1}}, {}]}":                       "training.curriculum.stages[0].where.field: missing",
		"{type: stages, stages: [{where: {field: d, at_least: 3, at_most: 2}, until: {steps: 1}}, {}]}": "training.curriculum.stages[0].where.at_least: no number is at least 3 and at most 2",
		"{type: stages, stages: [{where: {field: d, values: [a], at_most: 2}, until: {steps: 1}}, {}]}": "training.curriculum.stages[0].where.values: unused key",
		"{type: stages, stages: [{until: {step: 1}}, {}]}":                                              "training.curriculum.stages[0].until.step (line 5): unknown key; did you mean steps?",
		"{type: stages, stages: [{until: {steps: a}}, {}]}":                                             "training.curriculum.stages[0].until.steps (line 5): \"a\" is not possible",
		"{type: stages, stages: [3, {}]}":                                                               "training.curriculum.stages[0] (line 5): a number where a mapping is expected",
		"{type: stages, stages: {}}":                                                                    "training.curriculum.stages (line 5): a mapping where a list is expected",
	} {
		s, err := spec.Parse([]byte("agent: {func: f}\ntasks: {train: a.jsonl}\ngrader: {type: exact}\ntraining:\n  {steps: 3, curriculum: "+curriculum+"}\n"), "spec.yaml")
		if err == nil {
			err = s.Validate()
		}
		require.ErrorContains(t, err, want, curriculum)
	}
}

func TestACurriculumThatIsUniformIsNone(t *testing.T) {
	t.Parallel()
	s := valid()
	want := spec.Digest(s)
	s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumUniform}
	require.False(t, s.Training.Chooses())
	require.Equal(t, want, spec.Digest(s))
	require.Nil(t, s.WithDefaults().Training.Curriculum)
	s.Training.Curriculum.Type = spec.CurriculumBand
	require.True(t, s.Training.Chooses())
	require.NotEqual(t, want, spec.Digest(s))
}

func TestABandIsSetWhileARunGoesOn(t *testing.T) {
	t.Parallel()
	s := valid()
	_, err := s.Set(map[string]float64{"training.curriculum.low": 0.2})
	require.ErrorContains(t, err, "training.curriculum.low: can't be set")
	s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumBand}
	s = s.WithDefaults()
	changed, err := s.Set(map[string]float64{"training.curriculum.low": 0.2, "training.curriculum.high": 0.7, "training.curriculum.explore": 0, "training.curriculum.forget": 0.5})
	require.NoError(t, err)
	c := changed.Training.Curriculum
	require.Equal(t, []float64{0.2, 0.7, 0, 0.5}, []float64{*c.Low, c.High, *c.Explore, c.Forget})
	require.InDelta(t, 0.1, *s.Training.Curriculum.Low, 0, "the original stays")
	_, err = s.Set(map[string]float64{"training.curriculum.low": 0.95})
	require.ErrorContains(t, err, "no pass rate is above 0.95 and below 0.9")
}

func TestFilesOfStagesAreResolved(t *testing.T) {
	t.Parallel()
	s := valid()
	s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumStages, Stages: []spec.Stage{{Until: spec.Until{Steps: 1}}, {Tasks: "more.jsonl"}}}
	resolved := s.Resolve("/runs")
	require.Equal(t, "/runs/more.jsonl", resolved.Training.Curriculum.Stages[1].Tasks)
	require.Equal(t, "more.jsonl", s.Training.Curriculum.Stages[1].Tasks, "the original stays")
	require.ErrorContains(t, resolved.CheckFiles(), "training.curriculum.stages[1].tasks: /runs/more.jsonl: no such file")
}
