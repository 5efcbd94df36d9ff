package activities_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// rollOut runs two samples of both tasks and returns their results: the rewards of group
// 0 differ, those of group 1 do not.
func (w *testEnv) rollOut(f agent.Func) activities.AssignCreditInput {
	w.t.Helper()
	runner := w.runner(w.serve(w.gateway()), f)
	in := activities.AssignCreditInput{Run: "demo", Policy: model.DefaultPolicy, Step: 1}
	for task, rewards := range [][]float64{{1, 0}, {1, 1}} {
		g := activities.Group{Task: task, Rewards: rewards}
		for sample := range rewards {
			r, err := do[activities.RunAgentResult](w.t, runner.RunAgent, rollout(task, sample))
			require.NoError(w.t, err)
			g.Attempts = append(g.Attempts, r.Attempt)
		}
		in.Groups = append(in.Groups, g)
	}
	return in
}

// twoCalls makes two calls, in separate dialogs.
func twoCalls(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	if _, err := ask(ctx, env, task.Input); err != nil {
		return "", err
	}
	_, err := ask(ctx, env, "again: "+task.Input)
	return "42", err
}

func TestAdvantagesLandOnTheSampledTokensOnly(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := w.rollOut(twoCalls)
	got, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	require.NoError(t, err)
	data, err := w.blobs.Get(t.Context(), got.Batch)
	require.NoError(t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(t, err)
	require.Len(t, b.Trajectories, 4)
	require.Len(t, b.Rows, 8, "two calls of four attempts, none of which extends another")

	trained := 0
	for _, r := range b.Rows {
		of := b.Trajectories[r.Trajectory]
		for i, sampled := range r.Sampled {
			want := 0.0
			if sampled {
				want = of.Advantage
				trained++
			}
			require.InDelta(t, want, r.Advantages[i], 1e-6)
		}
		require.Positive(t, r.Trained())
	}
	require.Equal(t, trained, b.Denominators.Tokens)
	require.Positive(t, b.Trajectories[0].Advantage)
	require.InDelta(t, 0, b.Trajectories[0].Advantage+b.Trajectories[1].Advantage, 1e-12)
	require.Zero(t, b.Trajectories[2].Advantage, "a group that does not vary teaches nothing")
	require.Zero(t, b.Trajectories[3].Advantage)

	require.InDelta(t, 0.75, got.Metrics["reward/mean"], 1e-12)
	require.InDelta(t, math.Sqrt(3)/4, got.Metrics["reward/std"], 1e-12)
	require.InDelta(t, 1, got.Metrics["batch/zero_variance_groups"], 0)
	require.InDelta(t, 8, got.Metrics["batch/calls"], 0)
	require.InDelta(t, trained, got.Metrics["batch/trained_tokens"], 0)

	again, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	require.NoError(t, err)
	require.Equal(t, got, again)
	v, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, got.Batch))
	require.NoError(t, err)
	require.InDelta(t, 0, v.Metrics["train/mismatch"], 1e-6, "the trainer sees the probabilities that were sampled")
	require.InDelta(t, 1, v.Metrics["train/ratio"], 1e-6)
}

func TestAStepWithoutAnyCallSaysWhy(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := w.rollOut(answers("42"))
	got, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	require.NoError(t, err)
	require.Contains(t, got.Idle, "base URL")
}
