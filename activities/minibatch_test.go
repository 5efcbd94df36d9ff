package activities_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

// stepOf makes step 1 of a run with the spec that s changed, on a batch of five groups.
// It also returns what its updates saw.
func stepOf(t *testing.T, s func(*spec.Spec)) (*testEnv, activities.VersionResult, model.Batch, []made) {
	t.Helper()
	w := newTestEnv(t)
	several := w.spec()
	several.Training.TasksPerStep = 5
	s(&several)
	w.start(several)
	trainer := w.trainer()
	seen := watch(trainer, nil)
	in := trainStep(1, w.groups(1, 5))
	v, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	data, err := w.blobs.Get(t.Context(), in.Batch)
	require.NoError(t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(t, err)
	return w, v, b, seen.made
}

// groupsOf returns the groups of the rows of an update. It recognizes a row by its
// tokens, which no other row has.
func groupsOf(b model.Batch, m made) (groups []int) {
	for _, r := range m.rows {
		i := slices.IndexFunc(b.Rows, func(x model.BatchRow) bool { return slices.Equal(x.Tokens, r.Tokens) })
		groups = append(groups, b.Trajectories[b.Rows[i].Trajectory].Group)
	}
	return groups
}

func TestEachPassLearnsFromEachGroupOnceAndWhole(t *testing.T) {
	t.Parallel()
	w, v, b, seen := stepOf(t, func(s *spec.Spec) { s.Training.Passes, s.Training.Minibatches = 3, 2 })
	require.Len(t, seen, 6)
	require.InDelta(t, 6, v.Metrics["train/updates"], 0)
	require.Positive(t, v.Metrics["train/kl"], "over all updates")
	require.NotContains(t, v.Metrics, "train/last_mismatch")
	_, once, _, _ := stepOf(t, func(s *spec.Spec) { s.Training.Minibatches = 2 })
	require.Equal(t, once.Metrics["train/mismatch"], v.Metrics["train/mismatch"], "of the first update alone") //nolint:testifylint // the same bits
	orders := map[string]bool{}
	for pass := range 3 {
		first, second := groupsOf(b, seen[2*pass]), groupsOf(b, seen[2*pass+1])
		require.Equal(t, 10, len(first)+len(second), "each row once")
		for g := range 5 {
			require.Contains(t, []int{0, 2}, times(first, g), "groups are not torn apart")
			require.Equal(t, 2, times(first, g)+times(second, g))
		}
		require.LessOrEqual(t, len(first)-len(second), 2)
		require.True(t, slices.IsSorted(first), "rows stay in the order of the batch")
		orders[fmt.Sprint(first)] = true
	}
	require.Greater(t, len(orders), 1, "each pass has its own parts")

	// It is one version, and the optimizer counts its updates.
	c, _, err := checkpoint.Load(t.Context(), w.blobs, w.manifest(1))
	require.NoError(t, err)
	require.Equal(t, 6, c.Updates)
}

func times(groups []int, g int) (n int) {
	for _, x := range groups {
		if x == g {
			n++
		}
	}
	return n
}

func (w *testEnv) manifest(number int) string {
	v, err := w.version(number)
	require.NoError(w.t, err)
	return v.Manifest
}

func TestALossIsNormalizedOverItsMinibatch(t *testing.T) {
	t.Parallel()
	for _, aggregation := range []credit.Aggregation{credit.TokenMean, credit.SequenceMean} {
		_, _, b, seen := stepOf(t, func(s *spec.Spec) {
			s.Training.Minibatches, s.Loss.Aggregation = 2, aggregation
			s.Loss.ClipLow, s.Loss.ClipHigh = 1, 1e9 // nothing is clipped
		})
		require.Len(t, seen, 2)
		for _, m := range seen {
			tokens, rows := 0, len(m.rows)
			for _, r := range m.rows {
				tokens += len(r.Tokens) - 3
			}
			for i, r := range m.rows {
				row := b.Rows[slices.IndexFunc(b.Rows, func(x model.BatchRow) bool { return slices.Equal(x.Tokens, r.Tokens) })]
				weight := 1 / float64(tokens)
				if aggregation == credit.SequenceMean {
					weight = 1 / float64(rows*(len(r.Tokens)-3))
				}
				for j, g := range m.gradient[i] {
					if !row.Sampled[j+1] {
						require.Zero(t, g)
						continue
					}
					r := math.Exp(float64(m.logprobs[i][j]) - float64(row.Logprobs[j+1]))
					require.InDelta(t, -weight*r*float64(row.Advantages[j+1]), g, 1e-6)
				}
			}
		}
	}
}

func TestAStepsUpdatesShareItsLearningRate(t *testing.T) {
	t.Parallel()
	_, v, _, seen := stepOf(t, func(s *spec.Spec) {
		s.Training.Passes, s.Training.Optimizer.LearningRate, s.Training.Optimizer.Schedule = 4, 2e-3, "linear"
	})
	require.Len(t, seen, 4)
	for _, m := range seen {
		require.InDelta(t, 2e-3, m.adamW.LearningRate, 0)
	}
	require.InDelta(t, 2e-3, v.Metrics["train/learning_rate"], 0)
}

func TestMetricsAreMeansOfTheUpdatesAndTheLastOfThem(t *testing.T) {
	t.Parallel()
	one := func(passes int) map[string]float64 {
		_, v, _, _ := stepOf(t, func(s *spec.Spec) { s.Training.Passes = passes })
		return v.Metrics
	}
	first, both := one(1), one(2)
	require.NotContains(t, first, "train/last_loss")
	require.InDelta(t, (first["train/loss"]+both["train/last_loss"])/2, both["train/loss"], 1e-12)
	require.InDelta(t, (first["train/gradient_norm"]+both["train/last_gradient_norm"])/2, both["train/gradient_norm"], 1e-12)
	require.NotEqual(t, first["train/loss"], both["train/last_loss"])
}

func TestMoreMinibatchesThanGroupsLeaveNoneEmpty(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Training.TasksPerStep, s.Training.Minibatches = 9, 9
	w.start(s)
	trainer := w.trainer()
	seen := watch(trainer, nil)
	_, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.groups(1, 3)))
	require.NoError(t, err)
	require.Len(t, seen.made, 3)
	for _, m := range seen.made {
		require.Len(t, m.rows, 2)
	}
}

func TestAStepThatWasCutOffMakesNoUpdateTwiceThatWasSaved(t *testing.T) {
	t.Parallel()
	template := newTestEnv(t)
	template.start(template.several())
	in := trainStep(1, template.groups(1, 4))
	undisturbed := template.copied(t)
	defer undisturbed.discard()
	want, err := do[activities.VersionResult](t, undisturbed.trainer().TrainStep, in)
	require.NoError(t, err)
	for saved := 1; saved <= 2; saved++ {
		w := template.copied(t)
		puts := 0
		trainer := w.trainer()
		trainer.SaveEvery = 1
		trainer.Versions = refusing{w.store, &puts, saved}
		updates := count(trainer)
		_, err := do[activities.VersionResult](t, trainer.TrainStep, in)
		requireRetryable(t, err, "the store is away")
		require.EqualValues(t, saved+1, updates.Load())
		trainer.Close()

		other := w.trainer()
		updates = count(other)
		got, err := do[activities.VersionResult](t, other.TrainStep, in)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.EqualValues(t, 4-saved, updates.Load())
		requireSameManifest(t, undisturbed, w, 1)
		other.Close()
		w.discard()
	}
}

// refusing records the first progress up to a number, and then none.
type refusing struct {
	*store.Store
	puts *int
	most int
}

func (r refusing) PutProgress(ctx context.Context, p model.Progress) error {
	if *r.puts++; *r.puts > r.most {
		return errors.New("the store is away")
	}
	return r.Store.PutProgress(ctx, p)
}

func TestSavingOftenOrNeverEndsInTheSameBits(t *testing.T) {
	t.Parallel()
	var all []string
	for _, every := range []int{0, 1, 2, math.MaxInt} {
		w := newTestEnv(t)
		w.start(w.several())
		trainer := w.trainer()
		trainer.SaveEvery = every
		v, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.groups(1, 4)))
		require.NoError(t, err)
		all = append(all, v.Weights+w.manifest(1))
	}
	require.Len(t, slices.Compact(all), 1)
}
