package activities_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// warm is what makes version 0 of a policy another one than that of the others.
func warm() *spec.WarmStart {
	return &spec.WarmStart{Demonstrations: "arithmetic", Updates: 2, Batch: 2}
}

// pairs returns attempts in which a writer makes two calls and a checker one. If byAgent is
// true, a policy of its name answered each of them.
func pairs(byAgent bool, rewards ...float64) []entry {
	var out []entry
	for _, r := range rewards {
		out = append(out, entry{says: []string{"writer: start", "checker: so?", "writer: then"}, reward: r, byAgent: byAgent})
	}
	return out
}

// requireRowsOf checks that the rows of a policy are those of the batch of a run that trains it
// alone, to the bit.
func requireRowsOf(t *testing.T, policy string, joint, alone model.Batch) {
	t.Helper()
	got := joint.Of(policy).Rows
	require.Len(t, got, len(alone.Rows), policy)
	for i, want := range alone.Rows {
		if want.Returns == nil { // another policy has a critic
			require.False(t, slices.ContainsFunc(got[i].Returns, func(r float32) bool { return r != 0 }), policy)
			got[i].Returns = nil
		}
		require.Empty(t, cmp.Diff(want, got[i]), "%s, row %d", policy, i)
	}
}

// requireMetricsOf checks that a policy has the same metrics of these kinds as a run that trains
// it alone.
func requireMetricsOf(t *testing.T, policy, kind string, joint, alone map[string]float64) {
	t.Helper()
	n := 0
	for _, name := range slices.Sorted(maps.Keys(alone)) {
		if strings.HasPrefix(name, kind) {
			n++
			require.Equal(t, alone[name], joint["policy/"+policy+"/"+name], "%s: %s", policy, name)
		}
	}
	require.Positive(t, n, kind)
}

// The writer begins as another model than the checker, and pays another price: its rows have
// the advantages of a run that trains it alone.
func TestEachPolicyPaysForItsDivergenceFromItsOwnVersionZero(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.twoPolicies()
	writer := s.Policies["writer"]
	writer.WarmStart, writer.Credit = warm(), &spec.Credit{KLInReward: &spec.KL{Weight: 0.5, Estimator: credit.KL2}}
	s.Policies["writer"], s.Credit.KLInReward = writer, &spec.KL{Weight: 0.25}
	w.start(s)
	require.NotEqual(t, w.of("writer", 0).Weights, w.of("checker", 0).Weights)
	joint, made := w.made(w.scoreReference(w.trainer(), w.record(1, pairs(true, 1, 0, 0.5), pairs(true, 0.2, 0.9))))
	sum, tokens := 0.0, 0.0
	for policy, kl := range map[string]*spec.KL{"writer": {Weight: 0.5, Estimator: credit.KL2}, "checker": {Weight: 0.25}} {
		alone := newTestEnv(t)
		s := alone.spec()
		s.Credit.KLInReward, s.Credit.TrainAgents = kl, policy
		if policy == "writer" {
			s.Model.WarmStart = warm()
		}
		alone.start(s)
		require.Equal(t, alone.manifestWeights(0), w.of(policy, 0).Weights)
		want, of := alone.made(alone.scoreReference(alone.trainer(), alone.record(1, pairs(false, 1, 0, 0.5), pairs(false, 0.2, 0.9))))
		requireRowsOf(t, policy, joint, want)
		requireMetricsOf(t, policy, "batch/kl_", made.Metrics, of.Metrics)
		require.NotZero(t, of.Metrics["batch/kl_penalty"])
		sum += of.Metrics["batch/kl_penalty"]
		tokens += of.Metrics["batch/kl_ref"] * of.Metrics["batch/trained_tokens"] / made.Metrics["batch/trained_tokens"]
	}
	require.InDelta(t, sum, made.Metrics["batch/kl_penalty"], 1e-9)
	require.InDelta(t, tokens, made.Metrics["batch/kl_ref"], 1e-9)
}

func TestOnlyAPolicyWithTheDivergenceInItsRewardsIsScored(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.twoPolicies()
	writer := s.Policies["writer"]
	writer.Credit = &spec.Credit{KLInReward: &spec.KL{Weight: 1}}
	s.Policies["writer"] = writer
	w.start(s)
	joint, made := w.made(w.scoreReference(w.trainer(), w.record(1, pairs(true, 1, 0, 0.5))))
	alone := newTestEnv(t)
	s = alone.spec()
	s.Credit.TrainAgents = "checker"
	alone.start(s)
	want, _ := alone.made(alone.record(1, pairs(false, 1, 0, 0.5)))
	requireRowsOf(t, "checker", joint, want)
	require.NotContains(t, made.Metrics, "policy/checker/batch/kl_ref")
	require.Equal(t, made.Metrics["policy/writer/batch/kl_ref"], made.Metrics["batch/kl_ref"])
	require.NotZero(t, made.Metrics["batch/kl_ref"])
}

// learned makes a step of recorded attempts with critics. It returns the batch, and the metrics
// of the critics.
func (w *testEnv) learned(step int, byAgent bool) (model.Batch, map[string]float64) {
	w.t.Helper()
	in := w.record(step, pairs(byAgent, 1, 0, 0.5), pairs(byAgent, 0.2, 0.9))
	scored, err := do[activities.ScoreBatchResult](w.t, w.trainer().ScoreBatch, activities.ScoreBatchInput{Run: in.Run, Step: step, Groups: in.Groups})
	require.NoError(w.t, err)
	in.Values = scored.Values
	b, made := w.made(in)
	trainer := w.trainer()
	_, err = do[activities.VersionResult](w.t, trainer.TrainStep, trainStep(step, made.Batch))
	require.NoError(w.t, err)
	got, err := do[activities.VersionResult](w.t, trainer.TrainCritic, trainCritic(step, made.Batch))
	require.NoError(w.t, err)
	return b, got.Metrics
}

// critics returns the spec of a run with two policies that each have a critic; if mixed is true,
// only the writer has one.
func (w *testEnv) critics(mixed bool) spec.Spec {
	s := w.twoPolicies()
	s.Training.Minibatches = 2
	s.Critic = &spec.Critic{LearningRate: 0.01, Passes: 2}
	writer := s.Policies["writer"]
	writer.WarmStart, writer.Critic = warm(), &spec.Critic{Passes: 3, Clip: 0.5}
	if mixed {
		writer.Credit = &spec.Credit{Tokens: credit.GAE}
	} else {
		s.Credit.Tokens = credit.GAE
	}
	s.Policies["writer"] = writer
	return s
}

// Each policy and its critic are those of a run that trains the policy alone, also if the other
// one has no critic.
func TestEachPolicyHasTheCriticThatItWouldHaveAlone(t *testing.T) {
	t.Parallel()
	for name, mixed := range map[string]bool{"both": false, "one of two": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.start(w.critics(mixed))
			joint, metrics := make([]model.Batch, 3), make([]map[string]float64, 3)
			for step := 1; step <= 2; step++ {
				joint[step], metrics[step] = w.learned(step, true)
			}
			for _, policy := range []string{"writer", "checker"} {
				alone := newTestEnv(t)
				s := alone.spec()
				s.Training.Minibatches, s.Credit.TrainAgents = 2, policy
				has := policy == "writer" || !mixed
				if has {
					s.Credit.Tokens, s.Critic = credit.GAE, &spec.Critic{LearningRate: 0.01, Passes: 2}
				}
				if policy == "writer" {
					s.Model.WarmStart, s.Critic.Passes, s.Critic.Clip = warm(), 3, 0.5
				}
				alone.start(s)
				for step := 1; step <= 2; step++ {
					if !has {
						_, made := alone.made(alone.record(step, pairs(false, 1, 0, 0.5), pairs(false, 0.2, 0.9)))
						_, err := do[activities.VersionResult](t, alone.trainer().TrainStep, trainStep(step, made.Batch))
						require.NoError(t, err)
						requireRowsOf(t, policy, joint[step], alone.decoded(made.Batch))
						require.Equal(t, alone.manifestWeights(step), w.of(policy, step).Weights)
						continue
					}
					want, of := alone.learned(step, false)
					requireRowsOf(t, policy, joint[step], want)
					requireMetricsOf(t, policy, "critic/", metrics[step], of)
					require.Equal(t, alone.manifestWeights(step), w.of(policy, step).Weights, "%s, step %d", policy, step)
					require.Equal(t, alone.critic(step).Weights, w.of(policy+".critic", step).Weights, "%s, step %d", policy, step)
					require.NotEqual(t, w.of(policy+".critic", step-1).Weights, w.of(policy+".critic", step).Weights)
				}
				if !has {
					versions, err := w.store.Versions(t.Context(), "demo", policy+".critic")
					require.NoError(t, err)
					require.Empty(t, versions)
				}
			}
		})
	}
}

// manifestWeights returns the weights of a version of the only policy.
func (w *testEnv) manifestWeights(number int) string {
	w.t.Helper()
	v, err := w.version(number)
	require.NoError(w.t, err)
	return v.Weights
}

func TestATrainerThatDiesBetweenTwoCriticsIsContinued(t *testing.T) {
	t.Parallel()
	never := newTestEnv(t)
	never.start(never.critics(false))
	never.learned(1, true)
	for _, critic := range []string{"checker.critic", "writer.critic"} { // in this order
		w := newTestEnv(t)
		w.prepare(w.critics(false))
		dying := w.trainer()
		dying.Versions = awayFor{w.store, critic}
		_, err := do[activities.VersionResult](t, dying.InitPolicy, initPolicy())
		require.ErrorContains(t, err, "the store is away", critic)
		_, err = do[activities.VersionResult](t, w.trainer().InitPolicy, initPolicy())
		require.NoError(t, err)

		in := w.record(1, pairs(true, 1, 0, 0.5), pairs(true, 0.2, 0.9))
		scored, err := do[activities.ScoreBatchResult](t, w.trainer().ScoreBatch, activities.ScoreBatchInput{Run: in.Run, Step: 1, Groups: in.Groups})
		require.NoError(t, err)
		in.Values = scored.Values
		_, made := w.made(in)
		_, err = do[activities.VersionResult](t, dying.TrainCritic, trainCritic(1, made.Batch))
		require.ErrorContains(t, err, "the store is away", critic)
		_, err = do[activities.VersionResult](t, w.trainer().TrainCritic, trainCritic(1, made.Batch))
		require.NoError(t, err)
		for _, of := range []string{"checker.critic", "writer.critic"} {
			require.Equal(t, never.of(of, 1).Manifest, w.of(of, 1).Manifest, "%s after %s was cut off", of, critic)
		}
	}
}
