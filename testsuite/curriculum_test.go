package testsuite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// choosing returns the spec of a run whose tasks a curriculum chooses.
func choosing(kind string, lag, steps int) spec.Spec {
	s := deciding(lag, steps)
	s.Training.DynamicSampling = 2
	two, three, reward := 2.0, 3.0, 0.3
	switch kind {
	case spec.CurriculumBand:
		s.Training.Curriculum = &spec.Curriculum{Type: kind, Forget: 0.1}
	case spec.CurriculumEasiestFirst:
		s.Training.Curriculum = &spec.Curriculum{Type: kind, Difficulty: "operands", Steps: 4}
	case spec.CurriculumStages:
		s.Training.Curriculum = &spec.Curriculum{Type: kind, Stages: []spec.Stage{
			{Name: "two", Where: &spec.Where{Field: "operands", AtMost: &two}, Until: spec.Until{Steps: 4, Reward: &reward, Over: 2}},
			{Name: "more", Where: &spec.Where{Field: "operands", AtLeast: &three}, Until: spec.Until{Steps: 1}},
			{Name: "all"},
		}}
	}
	return s.WithDefaults()
}

// fewTasks writes a file of tasks for a stage and returns its path.
func fewTasks(t *testing.T) string {
	t.Helper()
	var lines strings.Builder
	for i := range 6 {
		fmt.Fprintf(&lines, `{"id": "file-%d", "input": "%d+1", "answer": "%d"}`+"\n", i, i, i+1)
	}
	path := filepath.Join(t.TempDir(), "few.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	return path
}

// choices returns the recorded choices of a run's curriculum, step by step.
func choices(ctx context.Context, t *testing.T, st *stack.Stack, name string) []record.Choice {
	t.Helper()
	all, err := st.Store.Choices(ctx, name, model.DefaultPolicy)
	require.NoError(t, err)
	for i, c := range all {
		require.Equal(t, i+1, c.Step)
		drawn := map[int]bool{}
		for _, d := range c.Draws {
			require.False(t, drawn[d.Task], "task %d twice in step %d", d.Task, c.Step)
			drawn[d.Task] = true
		}
		all[i].Run, all[i].At = "", time.Time{}
	}
	return all
}

func TestRunsWithACurriculumEndInTheSameBits(t *testing.T) {
	t.Parallel()
	for kind, lag := range map[string]int{spec.CurriculumBand: 1, spec.CurriculumEasiestFirst: 0, spec.CurriculumStages: 1} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind != spec.CurriculumBand {
				skipKind(t, "the kind band shows it")
			}
			ctx := t.Context()
			s := choosing(kind, lag, 5)
			if kind == spec.CurriculumStages {
				s.Training.Curriculum.Stages[1].Where, s.Training.Curriculum.Stages[1].Tasks = nil, fewTasks(t)
			}
			results, chosen := make([]workflows.TrainingResult, 2), make([][]record.Choice, 2)
			var g errgroup.Group
			for i, events := range []int{0, 100} { // the second continues as new on its way
				g.Go(func() error {
					st, err := stack.Start(ctx, stack.Options{
						Dir: t.TempDir(), Agents: agent.Registry{"calculator": calculate}, Log: zap.NewNop(), HistoryEvents: events,
					})
					if err != nil {
						return err
					}
					name := fmt.Sprintf("chosen-%d", i)
					if results[i], err = train(ctx, st, name, s); err != nil {
						return err
					}
					accounted(ctx, t, st, name)
					chosen[i] = choices(ctx, t, st, name)
					return st.Close()
				})
			}
			require.NoError(t, g.Wait())
			require.Equal(t, results[0].Weights, results[1].Weights)
			require.Equal(t, chosen[0], chosen[1])
			require.Len(t, chosen[0], 5)
			for _, c := range chosen[0] {
				t.Logf("step %d: %s", c.Step, c)
			}
		})
	}
}

func TestARunWithACurriculumResetAnywhereEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	skipShort(t, "TestARunResetWhileItRuns does the same while goroutines meet")
	ctx := t.Context()
	st := sharedStack(t)
	want := mustTrain(ctx, t, st, "curriculum-reset", choosing(spec.CurriculumBand, 0, 3))
	made := choices(ctx, t, st, "curriculum-reset")
	first := firstExecution(ctx, t, st.Client, "curriculum-reset")
	ids, kinds := points(eventsOf(ctx, t, st.Client, "curriculum-reset"))
	seen := map[string]int{}
	for _, event := range ids {
		kind := kinds[event]
		seen[kind]++
		if wanted := kind == "ChooseTasks" && seen[kind] == 3; !wanted && !*everyReset {
			continue
		}
		run, err := reset(ctx, st.Client, "curriculum-reset", first, event)
		require.NoError(t, err)
		var got workflows.TrainingResult
		require.NoError(t, st.Client.GetWorkflow(ctx, "curriculum-reset", run).Get(ctx, &got), "reset to event %d: %s", event, kind)
		require.Equal(t, want, got, "reset to event %d: %s", event, kind)
		requireWhole(ctx, t, st, "curriculum-reset")
		require.Equal(t, made, choices(ctx, t, st, "curriculum-reset"))
	}
	require.GreaterOrEqual(t, seen["ChooseTasks"], 3)
	require.True(t, slices.ContainsFunc(made, func(c record.Choice) bool { return c.Count(record.ReasonBand) > 0 }), "results were looked at")
}
