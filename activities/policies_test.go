package activities_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

// twoPolicies returns the spec of a run with two policies. Those that are named are frozen.
func (w *testEnv) twoPolicies(frozen ...string) spec.Spec {
	s := w.spec()
	s.Policies = map[string]spec.Policy{
		"checker": {Frozen: slices.Contains(frozen, "checker")},
		"writer":  {Match: []spec.PolicyMatch{{Agent: "writer"}}, Frozen: slices.Contains(frozen, "writer")},
	}
	return s
}

// rowsOf stores the batch of step 1 in which row i is of policies[i], "" if the run trains
// only one. A row whose policy is "-" is left out.
func (w *testEnv) rowsOf(policies ...string) string {
	w.t.Helper()
	data, err := w.blobs.Get(w.t.Context(), w.batch(1, sampledAt))
	require.NoError(w.t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(w.t, err)
	var rows []model.BatchRow
	for i, policy := range policies {
		if policy == "-" {
			continue
		}
		b.Rows[i].Policy = policy
		rows = append(rows, b.Rows[i])
	}
	b.Rows = rows
	b.Count()
	if data, err = hf.EncodeBatch(b); err == nil {
		var digest string
		if digest, err = w.blobs.Put(w.t.Context(), data); err == nil {
			return digest
		}
	}
	require.NoError(w.t, err)
	return ""
}

// of returns a version of one of the policies.
func (w *testEnv) of(policy string, number int) model.Version {
	w.t.Helper()
	v, err := w.store.Version(w.t.Context(), model.VersionID{Run: "demo", Policy: policy, Number: number})
	require.NoError(w.t, err)
	return v
}

func TestAPolicyIsTrainedAsIfItWereAlone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	start := w.start(w.twoPolicies())
	joint, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.rowsOf("writer", "checker")))
	require.NoError(t, err)
	require.NotEqual(t, start.Weights, joint.Weights)
	for policy, rows := range map[string][]string{"writer": {"", "-"}, "checker": {"-", ""}} {
		alone := newTestEnv(t)
		alone.start(alone.spec())
		want, err := do[activities.VersionResult](t, alone.trainer().TrainStep, trainStep(1, alone.rowsOf(rows...)))
		require.NoError(t, err)
		require.Equal(t, want.Weights, w.of(policy, 1).Weights, policy)
		for name, value := range want.Metrics {
			require.Equal(t, value, joint.Metrics["policy/"+policy+"/"+name], name)
		}
	}
	require.NotEqual(t, w.of("writer", 1).Weights, w.of("checker", 1).Weights)
	text, err := w.blobs.Get(t.Context(), w.of(model.DefaultPolicy, 1).Manifest)
	require.NoError(t, err)
	m, err := model.ParseJointManifest(text)
	require.NoError(t, err)
	require.Equal(t, m.Weights(), joint.Weights)
	for _, policy := range []string{"writer", "checker"} {
		require.Equal(t, model.JointPart{Manifest: w.of(policy, 1).Manifest, Weights: w.of(policy, 1).Weights}, m.Policies[policy])
	}
	_, err = model.ParseManifest(text)
	require.ErrorIs(t, err, model.ErrJoint)
}

func TestScoresOfAJointVersionAreInTheOrderOfTheBatch(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.twoPolicies())
	_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.rowsOf("writer", "checker")))
	require.NoError(t, err)
	scores := func(policy string) model.Scores {
		file, err := w.blobs.Get(t.Context(), w.of(policy, 1).Scores)
		require.NoError(t, err)
		s, err := hf.DecodeScores(file)
		require.NoError(t, err)
		return s
	}
	all := scores(model.DefaultPolicy)
	require.Equal(t, slices.Concat(scores("writer").Logprobs, scores("checker").Logprobs), all.Logprobs)
	require.Equal(t, slices.Concat(scores("writer").Entropies, scores("checker").Entropies), all.Entropies)
	require.Len(t, all.Logprobs, 6)
}

func TestAPolicyWithoutARowIsItsParent(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.twoPolicies())
	_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.rowsOf("writer", "writer")))
	require.NoError(t, err)
	require.NotEqual(t, w.of("writer", 0).Weights, w.of("writer", 1).Weights)
	require.Equal(t, w.of("checker", 0).Weights, w.of("checker", 1).Weights)
}

func TestAFrozenPolicyIsNeverTrained(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.twoPolicies("checker"))
	in := trainStep(1, w.rowsOf("writer", "-"))
	_, err := do[activities.VersionResult](t, w.trainer().TrainStep, in)
	require.NoError(t, err)
	frozen := w.of("checker", 1)
	require.Equal(t, w.of("checker", 0).Weights, frozen.Weights)
	require.Equal(t, in.Batch, frozen.Batch)
	require.NotEqual(t, w.of("checker", 0).Manifest, frozen.Manifest)
	c, digest, err := w.catalog.Load(t.Context(), frozen.VersionID)
	require.NoError(t, err)
	require.Equal(t, frozen.Weights, digest)
	require.NotEmpty(t, c.Weights)
}

// awayFor refuses to record the version of one policy.
type awayFor struct {
	*store.Store
	policy string
}

func (r awayFor) PutVersion(ctx context.Context, v model.Version) (model.Version, bool, error) {
	if v.Policy == r.policy {
		return v, false, errors.New("the store is away")
	}
	return r.Store.PutVersion(ctx, v)
}

func TestATrainerThatDiesBetweenTwoPoliciesIsContinued(t *testing.T) {
	t.Parallel()
	never := newTestEnv(t)
	never.start(never.twoPolicies())
	want, err := do[activities.VersionResult](t, never.trainer().TrainStep, trainStep(1, never.rowsOf("writer", "checker")))
	require.NoError(t, err)
	for _, policy := range []string{"checker", "writer", model.DefaultPolicy} { // in this order
		w := newTestEnv(t)
		w.start(w.twoPolicies())
		in := trainStep(1, w.rowsOf("writer", "checker"))
		dying := w.trainer()
		dying.Versions = awayFor{w.store, policy}
		_, err := do[activities.VersionResult](t, dying.TrainStep, in)
		require.ErrorContains(t, err, "the store is away", policy)
		w.requireNoVersion(1)
		got, err := do[activities.VersionResult](t, w.trainer().TrainStep, in)
		require.NoError(t, err)
		require.Equal(t, want.Weights, got.Weights, policy)
	}
}

func TestARunBeginsFromThePoliciesOfAnother(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.twoPolicies())
	trained, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.rowsOf("writer", "checker")))
	require.NoError(t, err)
	begin := func(run string, policies map[string]spec.Policy) (activities.VersionResult, error) {
		s := w.spec()
		s.Model, s.Policies = spec.Model{Version: "demo@1"}, policies
		in := w.request(s)
		in.Run, in.WorkflowID, in.ExecutionID = run, run, run
		if _, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in); err != nil {
			return activities.VersionResult{}, err
		}
		return do[activities.VersionResult](t, w.trainer().InitPolicy, activities.InitPolicyInput{Run: run, Policy: model.DefaultPolicy})
	}
	got, err := begin("again", w.twoPolicies().Policies)
	require.NoError(t, err)
	require.Equal(t, trained.Weights, got.Weights, "each policy has the weights of the one with its name")
	_, err = begin("one", nil)
	require.ErrorContains(t, err, "run demo has the policies checker, writer, and none is called main")
	_, err = begin("others", map[string]spec.Policy{"poet": {}, "writer": {Match: []spec.PolicyMatch{{Agent: "writer"}}}})
	require.ErrorContains(t, err, "none is called poet")
}
