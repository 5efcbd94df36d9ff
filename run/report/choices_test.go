package report_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
)

// newChosenRun returns a run of two steps whose tasks a band chooses. In step 1, the
// first task was quarantined and the second never solved. edit changes choices before
// they are recorded.
func newChosenRun(t *testing.T, edit func(*record.Choice)) *testRun {
	t.Helper()
	s := spec.Spec{Seed: seed, Training: spec.Training{Steps: 2, TasksPerStep: perStep, SamplesPerTask: samples, Curriculum: &spec.Curriculum{Type: spec.CurriculumBand, Forget: 0.1}}}
	run := newRunWith(t, s)
	run.choices = map[int]record.Choice{}
	run.choose(s.WithDefaults(), 1, edit)
	run.begin(at(1, record.Train, 0, 0, 1).RolloutID)
	first := run.choices[1].Place(0).Task
	require.NoError(t, run.store.PutQuarantine(t.Context(), record.Quarantine{Run: "demo", Policy: "main", Step: 1, Kind: record.Train, Task: 0, Index: first, Reason: "no answer"}))
	run.rewarded(1, record.Train, 1, true, 0, 0)
	run.rewarded(1, record.Train, 2, true, 0, 1)
	run.rewarded(1, record.Reserve, 0, true, 1, 0)
	run.choose(s.WithDefaults(), 2, edit)
	for i := range perStep {
		run.rewarded(2, record.Train, perStep+i, true, 1, 0)
	}
	return run
}

// choose puts the choice of a step on record.
func (run *testRun) choose(s spec.Spec, step int, edit func(*record.Choice)) {
	run.t.Helper()
	ctx := run.t.Context()
	e := curriculum.Evidence{Spec: s, Tasks: run.tasks}
	var err error
	e.Scores, err = run.store.StepScores(ctx, "demo", "main", 1, step)
	require.NoError(run.t, err)
	e.Quarantines, err = run.store.Quarantines(ctx, "demo", "main")
	require.NoError(run.t, err)
	c, err := e.Choose(step)
	require.NoError(run.t, err)
	c.Run, c.Policy = "demo", "main"
	c.Settings, err = json.Marshal(s.Training.Curriculum)
	require.NoError(run.t, err)
	if edit != nil {
		edit(&c)
	}
	stored, err := run.store.PutChoice(ctx, c)
	require.NoError(run.t, err)
	stored.Step = step // in case edit changed it
	run.choices[step] = stored
}

func TestDrawsOfACurriculumAreAccountedFor(t *testing.T) {
	t.Parallel()
	run := newChosenRun(t, nil)
	r := run.report()
	require.Empty(t, r.Faults)
	require.Equal(t, report.Prompts{Issued: 6, Refills: 1, Quarantined: 1, Trained: 6}, r.Prompts)
	require.Equal(t, 4, run.choices[2].Left, "the quarantined task is not drawn again")
	require.Equal(t, 3, run.choices[2].Known)
}

func TestAReportSaysWhatIsWrongWithAChoice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit  func(*record.Choice)
		fault string
	}{
		"other tasks": {func(c *record.Choice) {
			if c.Step == 2 {
				c.Draws[0], c.Draws[3] = c.Draws[3], c.Draws[0]
			}
		}, "the choice of step 2: place 0 is task"},
		"another reason": {func(c *record.Choice) { c.Draws[1].Why = record.ReasonBand }, "by the results it should be task"},
		"fewer reserves": {func(c *record.Choice) { c.Draws = c.Draws[:4] }, "4 tasks of stage 1 for 3 places are on record"},
		"other settings": {func(c *record.Choice) { c.Settings = json.RawMessage(`{"type":"stages"}`) }, `it is of type "stages", the spec says "band"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, faultsOf(newChosenRun(t, c.edit).report()), c.fault)
		})
	}
}

func TestAStepWithoutItsChoiceIsAFault(t *testing.T) {
	t.Parallel()
	run := newChosenRun(t, func(c *record.Choice) {
		if c.Step == 2 {
			c.Step = 3 // a step that has no choice
		}
	})
	require.Contains(t, faultsOf(run.report()), "step 2 is finished, and which tasks it was to attempt is not on record")
}

func faultsOf(r report.Report) string {
	out := ""
	for _, f := range r.Faults {
		out += f + "\n"
	}
	return out
}
