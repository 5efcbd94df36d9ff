package activities_test

import (
	"math"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/spec"
)

const klWeight = 0.5

func penalized(s *spec.Spec) { s.Loss.KL = &spec.KL{Estimator: "k2", Weight: klWeight} }

func TestTheReferenceIsVersionZero(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	penalized(&s)
	w.start(s)
	trainer := w.trainer()
	seen := watch(trainer, nil)
	first, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.groups(1, 2)))
	require.NoError(t, err)
	require.Zero(t, first.Metrics["train/kl_ref"], "version 1 starts from it, to the bit")

	in := trainStep(2, w.groups(2, 2))
	second, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	data, err := w.blobs.Get(t.Context(), in.Batch)
	require.NoError(t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(t, err)
	reference, sum := w.proximal(b), 0.0 // version 0, scored independently of TrainStep
	for i, r := range b.Rows {
		for j, g := range seen.made[1].gradient[i] {
			if !r.Sampled[j+1] {
				require.Zero(t, g)
				continue
			}
			current, a := float64(seen.made[1].logprobs[i][j]), float64(r.Advantages[j+1])
			d := float64(reference[i][j]) - current
			sum += d * d / 2
			ratio := math.Exp(current - float64(r.Logprobs[j+1]))
			want := -ratio * a
			if (a > 0 && ratio > 1.28) || (a < 0 && ratio < 0.8) {
				want = 0
			}
			require.InDelta(t, (want-klWeight*d)/float64(b.Denominators.Tokens), g, 1e-7)
		}
	}
	require.Positive(t, sum)
	require.InDelta(t, sum/float64(b.Denominators.Tokens), second.Metrics["train/kl_ref"], 1e-9)
}

func TestARestartedTrainerHasTheSameReference(t *testing.T) {
	t.Parallel()
	steady, restarted := newTestEnv(t), newTestEnv(t)
	resident := steady.trainer()
	for _, w := range []*testEnv{steady, restarted} {
		s := w.spec()
		penalized(&s)
		w.start(s)
	}
	for step := 1; step <= 3; step++ {
		one, err := do[activities.VersionResult](t, resident.TrainStep, trainStep(step, steady.groups(step, 2)))
		require.NoError(t, err)
		other, err := do[activities.VersionResult](t, restarted.trainer().TrainStep, trainStep(step, restarted.groups(step, 2)))
		require.NoError(t, err)
		require.Equal(t, one, other)
		requireSameManifest(t, steady, restarted, step)
	}
}

// countedTrainers counts the trainers of an engine that are in memory.
type countedTrainers struct {
	model.Engine
	made, held atomic.Int64
}

func (l *countedTrainers) NewTrainer(c model.Checkpoint) (model.Trainer, error) {
	l.made.Add(1)
	l.held.Add(1)
	t, err := l.Engine.NewTrainer(c)
	return countedTrainer{t, l}, err
}

type countedTrainer struct {
	model.Trainer
	from *countedTrainers
}

func (l countedTrainer) Close() {
	l.from.held.Add(-1)
	l.Trainer.Close()
}

func TestTheReferenceStaysInMemoryAsLongAsItIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	penalized(&s)
	w.start(s)
	e, err := engines("native")
	require.NoError(t, err)
	engine := &countedTrainers{Engine: e}
	trainer := w.trainer()
	trainer.Engines = func(string) (model.Engine, error) { return engine, nil }
	for step := 1; step <= 2; step++ {
		_, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(step, w.groups(step, 2)))
		require.NoError(t, err)
		require.EqualValues(t, 2, engine.made.Load(), "the policy and the reference, once")
	}
	// Another run on the same worker has no reference.
	request := w.request(w.spec())
	request.Run, request.WorkflowID, request.ExecutionID = "other", "other", "execution-2"
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, request)
	require.NoError(t, err)
	_, err = do[activities.VersionResult](t, trainer.InitPolicy, activities.InitPolicyInput{Run: "other", Policy: model.DefaultPolicy})
	require.NoError(t, err)
	in := trainStep(1, w.groups(1, 2))
	in.Run = "other"
	v, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	require.NotContains(t, v.Metrics, "train/kl_ref")
	require.EqualValues(t, 1, engine.held.Load(), "the policy alone")
	trainer.Close()
	require.Zero(t, engine.held.Load())
}

func TestCloseFreesTheReference(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	penalized(&s)
	w.start(s)
	e, err := engines("native")
	require.NoError(t, err)
	engine := &countedTrainers{Engine: e}
	trainer := w.trainer()
	trainer.Engines = func(string) (model.Engine, error) { return engine, nil }
	_, err = do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.groups(1, 2)))
	require.NoError(t, err)
	require.EqualValues(t, 2, engine.held.Load())
	trainer.Close()
	require.Zero(t, engine.held.Load())
}

func TestAReferenceThatCantBeReadIsNamed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	penalized(&s)
	w.start(s)
	first := w.trainer()
	_, err := do[activities.VersionResult](t, first.TrainStep, trainStep(1, w.groups(1, 2)))
	require.NoError(t, err)
	lost, err := os.ReadFile(w.path(w.parent().Weights))
	require.NoError(t, err)
	w.overwrite(w.parent().Weights)
	other, in := w.trainer(), trainStep(2, w.groups(2, 2))
	_, err = do[activities.VersionResult](t, other.TrainStep, in)
	requireRetryable(t, err, "version demo@2", "load the reference demo@0", model.WeightsFile, "corrupt", "put a copy of the file back")
	w.requireNoVersion(2)

	require.NoError(t, os.WriteFile(w.path(w.parent().Weights), lost, 0o600))
	_, err = do[activities.VersionResult](t, other.TrainStep, in)
	require.NoError(t, err, "it goes on when the file is back")
}

// A penalty for leaving the reference compares the distributions that remain under a
// form, not the full ones.
func TestTheReferenceSeesTheDistributionThatAFormLeft(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	spec := w.spec()
	penalized(&spec)
	w.start(spec)
	engine, err := engines("native")
	require.NoError(t, err)
	s := serve.New(engine, w.catalog, 1)
	s.Constrain = fewTokens
	t.Cleanup(s.Close)
	in := activities.AssignCreditInput{Run: "demo", Policy: model.DefaultPolicy, Step: 1}
	for task := range 2 {
		g := activities.Group{Task: task, Rewards: []float64{0, 1}}
		for sample := range 2 {
			g.Attempts = append(g.Attempts, w.sampleFormed(s, task, sample))
		}
		in.Groups = append(in.Groups, g)
	}
	credit, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	require.NoError(t, err)
	trainer := w.trainer()
	trainer.Constrain = fewTokens
	v, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, credit.Batch))
	require.NoError(t, err)
	require.Contains(t, v.Metrics, "train/kl_ref")
	require.Zero(t, v.Metrics["train/kl_ref"])
	require.Zero(t, v.Metrics["train/mismatch"])
}
