package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// fakeSearch is a search of given rounds, and then its end.
type fakeSearch struct {
	rounds [][]activities.SearchRequest
	end    activities.SearchEnd
	steps  []activities.StepSearchInput
	// answers are the results by request, and asked the requests to the reflector.
	answers map[string][]search.Result
	asked   []string
	// before, if not nil, is called before a step.
	before func(step int)
}

func (f *fakeSearch) environment(fake *fakeActivities) *testsuite.TestWorkflowEnvironment {
	s := testSpec()
	s.Optimizer = &spec.PromptOptimizer{}
	env := fake.environment(s)
	env.RegisterWorkflow(workflows.PromptWorkflow)
	env.RegisterWorkflow(workflows.CandidateWorkflow)
	f.answers = map[string][]search.Result{}
	var c *activities.Coordinator
	env.OnActivity(c.StepSearch, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.StepSearchInput) (activities.StepSearchResult, error) {
		var out activities.StepSearchResult
		fake.locked(func() {
			n := len(f.steps)
			f.steps = append(f.steps, in)
			if in.Stop || n >= len(f.rounds) {
				out.End = &f.end
			} else {
				out.Requests = f.rounds[n]
			}
		})
		if f.before != nil {
			f.before(len(f.steps))
		}
		return out, nil
	})
	env.OnActivity(c.AnswerSearch, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.AnswerSearchInput) error {
		fake.locked(func() { f.answers[in.Request] = in.Results })
		return nil
	})
	env.OnActivity(c.AskReflector, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.AskReflectorInput) error {
		fake.locked(func() { f.asked = append(f.asked, in.Request) })
		return nil
	})
	return env
}

func evaluation(id string, number int, kind record.Kind, samples int, tasks ...int) activities.SearchRequest {
	return activities.SearchRequest{ID: id, Number: number, Kind: search.Evaluate, Rollouts: kind, Tasks: tasks, Samples: samples, Prompts: "sha256:" + id}
}

func TestASearchServesRequestsAndPromotesItsWinner(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(_ int, kind record.Kind) float64 {
		return map[record.Kind]float64{record.Validation: 0.25, record.Minibatch: 0.75}[kind]
	}}
	f := &fakeSearch{
		rounds: [][]activities.SearchRequest{
			{evaluation("seed", 0, record.Validation, 2, 0, 1, 2)},
			{evaluation("p0.parent", 1, record.Minibatch, 1, 7, 7, 3), {ID: "p0.reflect", Number: 2, Kind: search.Reflect}},
		},
		end: activities.SearchEnd{Reason: search.EndSolved, Version: 1, Prompts: "sha256:winner"},
	}
	env := f.environment(fake)
	env.ExecuteWorkflow(workflows.PromptWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, &f.end, out.SearchEnd)

	require.Len(t, f.answers["seed"], 3)
	require.InDelta(t, 0.25, *f.answers["seed"][2].Score, 0)
	require.Len(t, f.answers["seed"][2].Attempts, 2)
	require.Equal(t, "run/validation-0/2/1/1", f.answers["seed"][2].Attempts[1].Trace)
	twice := f.answers["p0.parent"]
	require.Equal(t, []int{7, 7, 3}, []int{twice[0].Task, twice[1].Task, twice[2].Task})
	require.NotEqual(t, twice[0].Attempts[0].Trace, twice[1].Attempts[0].Trace, "a task that occurs twice is attempted twice")
	require.Equal(t, []string{"p0.reflect"}, f.asked)

	served := map[record.Kind]map[string]int{}
	for _, r := range fake.rollouts {
		require.Zero(t, r.Version, "the weights have one version")
		require.Equal(t, "main", r.Policy)
		if served[r.Rollout.Kind] == nil {
			served[r.Rollout.Kind] = map[string]int{}
		}
		served[r.Rollout.Kind][r.Prompts]++
	}
	require.Equal(t, map[string]int{"sha256:seed": 6}, served[record.Validation])
	require.Equal(t, map[string]int{"sha256:p0.parent": 3}, served[record.Minibatch])
	require.Equal(t, map[string]int{"": 10, "sha256:winner": 10}, served[record.Gate])
	require.Len(t, fake.promoted, 2, "weights and prompts, version 0 each: the fake gate finds nothing better")
	require.Equal(t, []string{"main", record.PromptsPolicy}, []string{fake.promoted[0].Policy, fake.promoted[1].Policy})
	require.Len(t, fake.decided, 1)
	require.Equal(t, record.PromptsPolicy, fake.decided[0].Policy)
	require.Empty(t, fake.trained)
}

func TestTasksThatCanNotBeGradedHaveNoScore(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore, ungraded: map[record.Kind]bool{record.Minibatch: true}}
	f := &fakeSearch{rounds: [][]activities.SearchRequest{{evaluation("a", 0, record.Minibatch, 1, 4, 5), evaluation("b", 1, record.Validation, 1, 0)}}}
	env := f.environment(fake)
	env.ExecuteWorkflow(workflows.PromptWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, f.answers["a"], 2)
	for i, r := range f.answers["a"] {
		require.Nil(t, r.Score, "not 0")
		require.Equal(t, []int{4, 5}[i], r.Task)
	}
	require.NotNil(t, f.answers["b"][0].Score)
}

func TestACandidateThatAPersonCancelsHasNoScores(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	f := &fakeSearch{rounds: [][]activities.SearchRequest{{evaluation("a", 0, record.Validation, 1, 4, 5)}}}
	env := f.environment(fake)
	env.OnWorkflow(workflows.CandidateWorkflow, mock.Anything, mock.Anything).Return(workflows.CandidateResult{}, temporal.NewCanceledError())
	env.ExecuteWorkflow(workflows.PromptWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []search.Result{{Task: 4}, {Task: 5}}, f.answers["a"])
}

func TestASearchPausesBetweenRoundsAndStopsWithTheBest(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	f := &fakeSearch{rounds: [][]activities.SearchRequest{
		{evaluation("a", 0, record.Validation, 1, 0)}, {evaluation("b", 1, record.Validation, 1, 0)}, {evaluation("c", 2, record.Validation, 1, 0)},
	}}
	env := f.environment(fake)
	var pause, stop, again updateCallback
	f.before = func(step int) {
		if step == 2 {
			env.UpdateWorkflow(workflows.UpdatePause, "pause", &pause, workflows.ControlInput{By: "ada"})
		}
	}
	env.RegisterDelayedCallback(func() {
		require.Len(t, f.steps, 2, "it is paused")
		env.UpdateWorkflow(workflows.UpdateStop, "stop", &stop, workflows.ControlInput{By: "ada", Reason: "enough"})
		env.UpdateWorkflow(workflows.UpdateStop, "again", &again, workflows.ControlInput{By: "ada"})
	}, 1<<40)
	env.ExecuteWorkflow(workflows.PromptWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.NoError(t, stop.rejected)
	require.Contains(t, stop.result.Message, "the best prompts so far")
	require.ErrorContains(t, again.rejected, "the search ends already")
	require.Contains(t, f.answers, "b")
	require.NotContains(t, f.answers, "c")
	require.True(t, f.steps[len(f.steps)-1].Stop)
	require.Equal(t, "ada", out.Stopped.By)
	require.Equal(t, record.Stopped, fake.finished[0].Status)
}
