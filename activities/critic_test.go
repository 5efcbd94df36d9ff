package activities_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// critical returns the spec of a run with a critic and several updates in a step.
func (w *testEnv) critical() spec.Spec {
	s := w.spec()
	s.Credit.Tokens = credit.GAE
	s.Training.Minibatches = 2
	s.Critic = &spec.Critic{LearningRate: 0.01, Passes: 3, Clip: 0.02}
	return s
}

func criticID(number int) model.VersionID {
	return model.VersionID{Run: "demo", Policy: model.CriticPolicy, Number: number}
}

func (w *testEnv) critic(number int) model.Version {
	w.t.Helper()
	v, err := w.store.Version(w.t.Context(), criticID(number))
	require.NoError(w.t, err)
	return v
}

func trainCritic(step int, batch string) activities.TrainCriticInput {
	return activities.TrainCriticInput{Run: "demo", Policy: model.DefaultPolicy, Step: step, Batch: batch}
}

// talks makes calls that continue the same dialog, so that they are one sequence. Then it
// begins another dialog.
func talks(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	first, err := ask(ctx, env, task.Input)
	if err != nil {
		return "", err
	}
	var reply struct {
		Choices []struct{ Message dialog.Message }
	}
	if err := json.Unmarshal([]byte(first), &reply); err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]any{"model": env.Model, "messages": []dialog.Message{
		{Role: dialog.User, Content: task.Input}, reply.Choices[0].Message, {Role: dialog.User, Content: "so?"},
	}})
	if err != nil {
		return "", err
	}
	if _, err = post(ctx, env, env.BaseURL+"/chat/completions", body); err != nil {
		return "", err
	}
	_, err = ask(ctx, env, "again")
	return "42", err
}

// attempts returns the attempts of a step, sampled by the version before it.
func (w *testEnv) attempts(step int) []activities.Group {
	w.t.Helper()
	sampling := w.gateway()
	server := httptest.NewServer(http.HandlerFunc(sampling.ServeHTTP))
	defer server.Close()
	runner := w.runner(server.URL, talks)
	groups := make([]activities.Group, 2)
	for task := range groups {
		groups[task] = activities.Group{Task: 2*(step-1) + task, Rewards: []float64{float64(task), 1}}
		for sample := range 2 {
			in := rollout(task, sample)
			in.Rollout.Step, in.Rollout.Task, in.Version = step, groups[task].Task, step-1
			r, err := do[activities.RunAgentResult](w.t, runner.RunAgent, in)
			require.NoError(w.t, err)
			groups[task].Attempts = append(groups[task].Attempts, r.Attempt)
		}
	}
	return groups
}

// criticStep makes one step of a run with a critic, with some keys of the spec changed.
// Each activity gets its own trainer.
func (w *testEnv) criticStep(step int, trainer func() *activities.Trainer, set map[string]float64) (values string, policy, critic activities.VersionResult) {
	w.t.Helper()
	groups := w.attempts(step)
	scored, err := do[activities.ScoreBatchResult](w.t, trainer().ScoreBatch, activities.ScoreBatchInput{Run: "demo", Step: step, Groups: groups})
	require.NoError(w.t, err)
	b, err := do[activities.AssignCreditResult](w.t, w.coordinator.AssignCredit, activities.AssignCreditInput{
		Run: "demo", Policy: model.DefaultPolicy, Step: step, Groups: groups, Values: scored.Values,
	})
	require.NoError(w.t, err)
	update, lesson := trainStep(step, b.Batch), trainCritic(step, b.Batch)
	update.Set, lesson.Set = set, set
	policy, err = do[activities.VersionResult](w.t, trainer().TrainStep, update)
	require.NoError(w.t, err)
	critic, err = do[activities.VersionResult](w.t, trainer().TrainCritic, lesson)
	require.NoError(w.t, err)
	return scored.Values, policy, critic
}

// A number that is set during the run has the same effect as in the spec.
func TestNumbersThatAreSetCountAsThoseOfTheSpec(t *testing.T) {
	t.Parallel()
	set := map[string]float64{"loss.entropy": 0.5, "loss.kl.weight": 2, "critic.learning_rate": 0.03, "critic.clip": 0.5}
	var policies, critics []string
	for _, c := range []struct{ given, set bool }{{}, {set: true}, {given: true}} {
		w := newTestEnv(t)
		s := w.critical()
		s.Loss.KL = &spec.KL{Estimator: "k1", Weight: 0.1}
		if c.given {
			s.Loss.Entropy, s.Loss.KL.Weight, s.Critic.LearningRate, s.Critic.Clip = 0.5, 2, 0.03, 0.5
		}
		w.start(s)
		var keys map[string]float64
		if c.set {
			keys = set
		}
		_, policy, critic := w.criticStep(1, w.trainer, keys)
		policies, critics = append(policies, policy.Weights), append(critics, critic.Weights)
	}
	require.Equal(t, policies[1], policies[2])
	require.Equal(t, critics[1], critics[2])
	require.NotEqual(t, policies[0], policies[1])
	require.NotEqual(t, critics[0], critics[1])
}

func TestInitPolicyMakesTheCriticOfItsVersion(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.critical())
	policy, err := w.version(0)
	require.NoError(t, err)
	start, _, err := checkpoint.Load(t.Context(), w.blobs, policy.Manifest)
	require.NoError(t, err)
	want, err := model.CriticOf(start)
	require.NoError(t, err)
	first := w.critic(0)
	got, m, err := checkpoint.Load(t.Context(), w.blobs, first.Manifest)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, -1, m.Parent)
	again, err := do[activities.VersionResult](t, w.trainer().InitPolicy, initPolicy())
	require.NoError(t, err)
	require.Equal(t, policy.Weights, again.Weights)
	require.Equal(t, first, w.critic(0))

	plain := newTestEnv(t)
	plain.start(plain.spec())
	_, err = plain.store.Version(t.Context(), criticID(0))
	require.ErrorIs(t, err, record.ErrNotFound)
}

func TestACriticWhoseMakingIsKilledAnywhereHasTheSameBits(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.critical())
	eachDeathOf(t, w, criticID(0), 1, func(trainer *activities.Trainer) (activities.VersionResult, error) {
		return do[activities.VersionResult](t, trainer.InitPolicy, initPolicy())
	})
}

func TestValuesAreThoseBeforeEachToken(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.critical())
	w.criticStep(1, w.trainer, nil) // a critic that knows nothing estimates 0 everywhere
	groups := w.attempts(2)
	in := activities.ScoreBatchInput{Run: "demo", Step: 2, Groups: groups}
	scored, err := do[activities.ScoreBatchResult](t, w.trainer().ScoreBatch, in)
	require.NoError(t, err)
	again, err := do[activities.ScoreBatchResult](t, w.trainer().ScoreBatch, in)
	require.NoError(t, err)
	require.Equal(t, scored, again)
	data, err := w.blobs.Get(t.Context(), scored.Values)
	require.NoError(t, err)
	v, err := hf.DecodeValues(data)
	require.NoError(t, err)
	require.Equal(t, model.CriticPolicy, v.Policy)
	require.Equal(t, 1, v.Version)

	c, _, err := checkpoint.Load(t.Context(), w.blobs, w.critic(1).Manifest)
	require.NoError(t, err)
	engine, err := engines("native")
	require.NoError(t, err)
	critic, err := engine.NewCritic(c)
	require.NoError(t, err)
	defer critic.Close()
	var addresses []record.Address
	for _, g := range groups {
		for sample, attempt := range g.Attempts {
			addresses = append(addresses, record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 2, Task: g.Task, Sample: sample}, Attempt: attempt})
		}
	}
	trajectories, err := w.store.Trajectories(t.Context(), addresses)
	require.NoError(t, err)
	require.Len(t, v.Calls, 4)
	for i, trajectory := range trajectories {
		require.Len(t, trajectory.History, 3)
		require.Len(t, record.Merge(trajectory.History), 2, "two of the calls are one sequence")
		require.Len(t, v.Calls[i], 3)
		for j, call := range trajectory.History {
			whole := append(append([]int32{}, call.Prompt...), call.Completion...)
			want, err := critic.Values(t.Context(), []model.Row{{Tokens: whole}})
			require.NoError(t, err)
			require.Equal(t, want[0][len(call.Prompt)-1:], v.Calls[i][j], "to the bit, whatever it was merged with")
			require.NotZero(t, v.Calls[i][j][0])
		}
	}
}

// The promise of equal bits, for a run with a critic: it doesn't matter which trainer
// executes which activity, and whether from memory or from blobs.
func TestRunsWithACriticHaveTheSameBits(t *testing.T) {
	t.Parallel()
	steady, restarted := newTestEnv(t), newTestEnv(t)
	steady.start(steady.critical())
	restarted.start(restarted.critical())
	resident := steady.trainer()
	seen := map[string]bool{}
	for step := 1; step <= 2; step++ {
		v1, p1, c1 := steady.criticStep(step, func() *activities.Trainer { return resident }, nil)
		v2, p2, c2 := restarted.criticStep(step, restarted.trainer, nil)
		require.Equal(t, v1, v2)
		require.Equal(t, p1, p2)
		require.Equal(t, c1, c2)
		requireSameManifest(t, steady, restarted, step)
		require.Equal(t, steady.critic(step).Manifest, restarted.critic(step).Manifest, "the moments too")
		for _, metric := range []string{"critic/loss", "critic/explained_variance", "critic/value_mean", "critic/gradient_norm"} {
			require.Contains(t, c1.Metrics, metric)
		}
		seen[c1.Weights], seen[p1.Weights] = true, true
	}
	require.Len(t, seen, 4, "each step taught both something")
	for _, policy := range []string{model.DefaultPolicy, model.CriticPolicy} {
		versions, err := steady.store.Versions(t.Context(), "demo", policy)
		require.NoError(t, err)
		require.Len(t, versions, 3, "one does not count among the other's")
	}
}

func (w *testEnv) decoded(batch string) model.Batch {
	w.t.Helper()
	data, err := w.blobs.Get(w.t.Context(), batch)
	require.NoError(w.t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(w.t, err)
	return b
}

// returned stores a batch whose groups are the same in every step, with invented returns:
// a quarter of the number of small tokens before each token.
func (w *testEnv) returned(step int) string {
	w.t.Helper()
	b := w.decoded(w.groups(1, 4))
	b.Step = step
	for i, r := range b.Rows {
		b.Rows[i].Returns = make([]float32, len(r.Tokens))
		small := float32(0)
		for k, sampled := range r.Sampled {
			if sampled {
				b.Rows[i].Returns[k] = small / 4
			}
			if r.Tokens[k] < 60 {
				small++
			}
		}
	}
	data, err := hf.EncodeBatch(b)
	require.NoError(w.t, err)
	digest, err := w.blobs.Put(w.t.Context(), data)
	require.NoError(w.t, err)
	return digest
}

func TestACriticsStepThatIsKilledAnywhereEndsInTheSameBits(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.critical())
	in := trainCritic(1, w.returned(1))
	eachDeathOf(t, w, criticID(1), 1, func(trainer *activities.Trainer) (activities.VersionResult, error) {
		return do[activities.VersionResult](t, trainer.TrainCritic, in)
	})
}

func TestACriticsMetricsTellOfWhatItKnewBefore(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.critical()
	s.Training.Minibatches, s.Critic.Clip = 1, 0
	s.Critic.Passes = 1
	w.start(s)
	trainer := w.trainer()
	batch := w.returned(1)
	first, err := do[activities.VersionResult](t, trainer.TrainCritic, trainCritic(1, batch))
	require.NoError(t, err)
	require.Zero(t, first.Metrics["critic/value_mean"])
	require.Zero(t, first.Metrics["critic/explained_variance"], "what says 0 everywhere explains nothing")
	sum, n := 0.0, 0.0
	for _, row := range w.decoded(batch).Rows {
		n += float64(row.Trained())
		for _, r := range row.Returns {
			sum += float64(r) * float64(r) / 2
		}
	}
	require.InDelta(t, sum/n, first.Metrics["critic/loss"], 1e-6, "half the mean square of the returns")
	second, err := do[activities.VersionResult](t, trainer.TrainCritic, trainCritic(2, w.returned(2)))
	require.NoError(t, err)
	require.Positive(t, second.Metrics["critic/value_mean"])
	require.Less(t, second.Metrics["critic/loss"], first.Metrics["critic/loss"])
}

func TestACriticLearnsTheReturnsOfItsBatches(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.critical()
	s.Critic.Passes, s.Critic.Clip = 20, 0
	w.start(s)
	trainer := w.trainer()
	var last activities.VersionResult
	for step := 1; step <= 4; step++ {
		var err error
		last, err = do[activities.VersionResult](t, trainer.TrainCritic, trainCritic(step, w.returned(step)))
		require.NoError(t, err)
	}
	require.Greater(t, last.Metrics["critic/explained_variance"], 0.9, "before it learned from this batch, but after others like it")
}

func TestWhatACriticCanNotLearnFromIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.critical())
	_, err := do[activities.VersionResult](t, w.trainer().TrainCritic, trainCritic(1, w.groups(1, 4)))
	requireFinal(t, err, "demo:critic@1", "no returns")
	_, err = do[activities.VersionResult](t, w.trainer().TrainCritic, trainCritic(1, w.returned(2)))
	requireFinal(t, err, "step 2")
	missing := activities.ScoreBatchInput{Run: "demo", Step: 1, Groups: []activities.Group{{Task: 9, Attempts: []int{1}, Rewards: []float64{1}}}}
	_, err = do[activities.ScoreBatchResult](t, w.trainer().ScoreBatch, missing)
	require.ErrorContains(t, err, "values of step 1 by demo:critic@0")

	plain := newTestEnv(t)
	plain.start(plain.spec())
	_, err = do[activities.VersionResult](t, plain.trainer().TrainCritic, trainCritic(1, plain.returned(1)))
	requireFinal(t, err, "no critic")

	// A directory with a critic can't be the base of a policy.
	a, weights, err := hf.ReadDirectory(w.dir + "/base")
	require.NoError(t, err)
	c, err := model.CriticOf(model.Checkpoint{Architecture: a, Weights: weights})
	require.NoError(t, err)
	other := newTestEnv(t)
	require.NoError(t, os.RemoveAll(other.dir+"/base"))
	require.NoError(t, hf.WriteDirectory(other.dir+"/base", c.Architecture, c.Weights))
	other.prepare(other.spec())
	_, err = do[activities.VersionResult](t, other.trainer().InitPolicy, initPolicy())
	requireFinal(t, err, "value_head")
}
