package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/spec"
)

func (w *testEnv) scoreReference(trainer *activities.Trainer, in activities.AssignCreditInput) activities.AssignCreditInput {
	w.t.Helper()
	got, err := do[activities.ScoreReferenceResult](w.t, trainer.ScoreReference, activities.ScoreReferenceInput{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Groups: in.Groups,
	})
	require.NoError(w.t, err)
	in.Reference = got.Reference
	return in
}

// Attempts that leave version 0 get a penalty before rewards are compared. Here with
// leave-one-out, for three attempts of one group.
func TestTheKLToVersionZeroIsPartOfRewards(t *testing.T) {
	t.Parallel()
	const beta = 0.25
	for _, engine := range []string{"native", "gomlx"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			s.Algorithm, s.Credit.KLInReward = "rloo", &spec.KL{Weight: beta}
			w.start(s)
			trainer := w.trainer()
			if engine == "gomlx" {
				e, err := gomlx.New(gomlx.Options{})
				require.NoError(t, err)
				trainer.Engines = func(string) (model.Engine, error) { return e, nil }
			}
			in := w.scoreReference(trainer, w.record(1, two(1, 0, 0.5)))
			b, got := w.made(in)
			require.Equal(t, in.Reference, b.Reference)

			// The same by hand: version 0 scores the rows of the batch apart from all that.
			reference, kl, tokens := w.proximal(b), make([]float64, len(b.Trajectories)), 0.0
			for i, r := range b.Rows {
				for j, sampled := range r.Sampled {
					if sampled {
						kl[r.Trajectory] += float64(r.Logprobs[j]) - float64(reference[i][j-1])
						tokens++
					}
				}
			}
			rewards, sum := make([]float64, len(kl)), 0.0
			for i, of := range b.Trajectories {
				rewards[i] = of.Reward - beta*kl[i]
				sum += kl[i]
			}
			require.InDelta(t, 2*2*3, tokens, 0)
			require.Greater(t, sum, 1.0, "what was recorded is far from version 0")
			for i := range rewards {
				want := rewards[i] - (rewards[0]+rewards[1]+rewards[2]-rewards[i])/2
				require.InDelta(t, want, b.Trajectories[i].Advantage, 1e-4)
				for _, call := range given(b)[i] {
					require.InDelta(t, want, call[0], 1e-4)
				}
			}
			require.InDelta(t, sum/tokens, got.Metrics["batch/kl_ref"], 1e-4)
			require.InDelta(t, beta*sum/3, got.Metrics["batch/kl_penalty"], 1e-4)
			require.InDelta(t, 0.5, got.Metrics["reward/mean"], 1e-12, "the metric is what graders gave")

			again := w.scoreReference(trainer, in)
			if engine == "native" {
				require.Equal(t, in.Reference, again.Reference, "to the bit")
			}
		})
	}
}

func TestOnTheReferenceItselfThereIsNothingToPay(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Credit.KLInReward = &spec.KL{Weight: 1, Estimator: "k3"}
	w.start(s)
	in := w.rollOut(twoCalls)
	_, got := w.made(w.scoreReference(w.trainer(), in))
	require.InDelta(t, 0, got.Metrics["batch/kl_ref"], 1e-9, "version 0 sampled")
}

func TestCreditWithoutTheReferenceIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{KLInReward: &spec.KL{Weight: 1}})
	in := w.record(1, two(1, 0))
	_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	requireFinal(t, err, "version 0 has not scored the calls of demo/train-1/0/0/1")
	in.Reference = w.values(in, func(v *model.Values) { v.Calls = v.Calls[:1] })
	_, err = do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	requireFinal(t, err, "the log-probabilities under version 0 sha256:")
}

// A run with the KL in its rewards scores version 0 in every step, so version 0 stays in
// memory, as for a loss with a KL.
func TestTheReferenceOfRewardsStaysInMemory(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Credit.KLInReward = &spec.KL{Weight: 1}
	w.start(s)
	e, err := engines("native")
	require.NoError(t, err)
	engine := &countedTrainers{Engine: e}
	trainer := w.trainer()
	trainer.Engines = func(string) (model.Engine, error) { return engine, nil }
	for step := 1; step <= 2; step++ {
		_, made := w.made(w.scoreReference(trainer, w.record(step, two(1, 0), two(0.5, 0.25))))
		_, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(step, made.Batch))
		require.NoError(t, err)
		require.EqualValues(t, 2, engine.made.Load(), "the reference and the policy, once")
	}
}
