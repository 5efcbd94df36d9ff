package checker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// chosen returns the evidence of a sound run whose tasks a curriculum of type band
// chooses. In step 1 only the first sample of the first task passed.
func chosen(t *testing.T) checker.Evidence {
	t.Helper()
	e, low := sound(), 0.2
	s := spec.Spec{
		Seed: runSeed, Tasks: spec.Tasks{Train: "arithmetic:train:5"},
		Training: spec.Training{Steps: steps, TasksPerStep: perStep, SamplesPerTask: samples, Curriculum: &spec.Curriculum{Type: spec.CurriculumBand, Low: &low, High: 0.8}},
	}.WithDefaults()
	e.Records.Chosen = &s
	list, err := tasks.Open(s.Tasks.Train)
	require.NoError(t, err)
	evidence := curriculum.Evidence{Spec: s, Tasks: list}
	for step := 1; step <= steps; step++ {
		choice, err := evidence.Choose(step)
		require.NoError(t, err)
		made := checker.Choice{Step: step, Stage: choice.Stage, Since: choice.Since}
		for _, d := range choice.Draws {
			made.Tasks = append(made.Tasks, d.Task)
		}
		e.Records.Choices = append(e.Records.Choices, made)
		for i := range perStep {
			g := &e.History.Issued[(step-1)*perStep+i]
			g.Index, g.Rewards = made.Tasks[i], []float64{float64(1 - i), 0}
			for sample, reward := range g.Rewards {
				evidence.Scores = append(evidence.Scores, record.StepScore{
					Kind: record.Train, Step: step, TaskID: list[g.Index].ID, Score: record.Score{Task: g.Task, Sample: sample, Reward: reward},
				})
			}
		}
		evidence.Before = &choice
	}
	return e
}

func TestAChoiceThatTheHistoryDoesNotGiveIsFound(t *testing.T) {
	t.Parallel()
	require.Empty(t, checker.Check(chosen(t)).Wrong)
	for name, test := range map[string]struct {
		spoil func(e *checker.Evidence)
		wrong string
	}{
		"another task issued": {func(e *checker.Evidence) { e.History.Issued[0].Index = e.Records.Choices[0].Tasks[1] }, "is task"},
		"another task chosen": {func(e *checker.Evidence) {
			c := e.Records.Choices[1].Tasks
			c[0], c[4] = c[4], c[0]
			e.History.Issued[2].Index = c[0]
		}, "the choice of step 2: place 0 is task"},
		"a task drawn twice": {func(e *checker.Evidence) { e.Records.Choices[0].Tasks[1] = e.Records.Choices[0].Tasks[0] }, "is drawn twice"},
		"no choice":          {func(e *checker.Evidence) { e.Records.Choices = e.Records.Choices[:1] }, "1 choices are on record for 2 steps"},
		"another reward": {func(e *checker.Evidence) {
			e.History.Issued[0].Rewards, e.History.Issued[1].Rewards = []float64{0, 0}, []float64{1, 0}
		}, "the choice of step 2"},
	} {
		e := chosen(t)
		test.spoil(&e)
		require.Contains(t, text(checker.Check(e)), test.wrong, name)
	}
}

func text(f checker.Findings) string {
	out := ""
	for _, w := range f.Wrong {
		out += w + "\n"
	}
	return out
}
