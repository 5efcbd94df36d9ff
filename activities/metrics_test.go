package activities_test

import (
	"context"
	"maps"
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
)

// requireMetrics compares all metrics of a version with what docs/metrics.md defines.
func requireMetrics(t *testing.T, want, got map[string]float64) {
	t.Helper()
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for name, v := range want {
		require.InDelta(t, v, got[name], 1e-5*math.Max(1, math.Abs(v)), name)
	}
}

// norm is the norm of the gradient that made a version in one update, from the optimizer's
// means before and after it. The run's spec must not cut gradients.
func (w *testEnv) norm(before, after string) float64 {
	w.t.Helper()
	old, _, err := checkpoint.Load(w.t.Context(), w.blobs, before)
	require.NoError(w.t, err)
	now, _, err := checkpoint.Load(w.t.Context(), w.blobs, after)
	require.NoError(w.t, err)
	beta, squares := w.spec().WithDefaults().Training.Optimizer.Beta1, 0.0
	for tensor, x := range now.Mean {
		for i, v := range x.Data {
			mean := 0.0
			if len(old.Mean) > 0 { // a new model has none
				mean = float64(old.Mean[tensor].Data[i])
			}
			g := (float64(v) - beta*mean) / (1 - beta)
			squares += g * g
		}
	}
	return math.Sqrt(squares)
}

// tokenFigures are sums over the trained tokens of an update.
type tokenFigures struct{ n, ratio, most, low, high, kl, mismatch, loss float64 }

// figuresOf follows the definitions in docs/metrics.md, for the loss PPO's clip with its
// default bounds.
func figuresOf(b model.Batch, logprobs func(row, token int) float64) (f tokenFigures) {
	for i, r := range b.Rows {
		for k, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			d, a := logprobs(i, k)-float64(r.Logprobs[k]), float64(r.Advantages[k])
			x := math.Exp(d)
			held := math.Max(0.8, math.Min(x, 1.28))
			f.n, f.ratio, f.most = f.n+1, f.ratio+x, math.Max(f.most, x)
			f.kl, f.mismatch = f.kl+x-1-d, f.mismatch+math.Abs(d)
			f.loss -= math.Min(x*a, held*a)
			switch {
			case a > 0 && x > held:
				f.high++
			case a < 0 && x < held:
				f.low++
			}
		}
	}
	return f
}

// uncut lets the norm of a gradient be found out afterwards.
func uncut(s *spec.Spec) { s.Training.Optimizer.ClipNorm = 1e6 }

func TestTheMetricsOfAnUpdateFollowFromItsTokens(t *testing.T) {
	t.Parallel()
	w, v, b, seen := stepOf(t, func(s *spec.Spec) {
		uncut(s)
		s.Loss.KL = &spec.KL{Estimator: "k1", Weight: 0.1}
	})
	require.Len(t, seen, 1)
	first := seen[0].logprobs
	f := figuresOf(b, func(row, token int) float64 { return float64(first[row][token-1]) })
	made, err := w.version(1)
	require.NoError(t, err)
	file, err := w.blobs.Get(t.Context(), made.Scores)
	require.NoError(t, err)
	scores, err := hf.DecodeScores(file)
	require.NoError(t, err)
	entropy := 0.0
	for _, e := range scores.Entropies {
		entropy += float64(e)
	}
	require.Positive(t, f.low+f.high)
	requireMetrics(t, map[string]float64{
		"train/updates": 1, "train/loss": f.loss / f.n, "train/entropy": entropy / f.n,
		"train/ratio": f.ratio / f.n, "train/ratio_max": f.most,
		"train/clip_fraction": (f.low + f.high) / f.n, "train/clip_fraction_low": f.low / f.n, "train/clip_fraction_high": f.high / f.n,
		"train/kl": f.kl / f.n, "train/kl_ref": 0, "train/mismatch": f.mismatch / f.n, // version 0 is the reference and the parent
		"train/gradient_norm": w.norm(w.manifest(0), w.manifest(1)), "train/learning_rate": w.spec().WithDefaults().Training.Optimizer.LearningRate,
	}, v.Metrics)
}

// The second step's policy has moved away from version 0.
func TestTheDivergenceFromTheReferenceIsThatFromVersionZero(t *testing.T) {
	t.Parallel()
	w, _, _, _ := stepOf(t, func(s *spec.Spec) {
		uncut(s)
		s.Loss.KL = &spec.KL{Estimator: "k1", Weight: 0.1}
	})
	trainer := w.trainer()
	seen := watch(trainer, nil)
	in := trainStep(2, w.groups(2, 5))
	v, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	b := w.decoded(in.Batch)
	reference := w.proximal(b) // by version 0
	sum, n := 0.0, 0.0
	for i, r := range b.Rows {
		for k, sampled := range r.Sampled {
			if sampled {
				sum, n = sum+float64(seen.made[0].logprobs[i][k-1])-float64(reference[i][k-1]), n+1
			}
		}
	}
	require.NotZero(t, sum)
	require.InDelta(t, sum/n, v.Metrics["train/kl_ref"], 1e-5)
}

func TestTheMetricsOfSeveralUpdatesAreTheirMeansAndTheLast(t *testing.T) {
	t.Parallel()
	_, v, b, seen := stepOf(t, func(s *spec.Spec) { s.Training.Passes = 2 })
	require.Len(t, seen, 2)
	var each []tokenFigures
	for _, m := range seen {
		each = append(each, figuresOf(b, func(row, token int) float64 { return float64(m.logprobs[row][token-1]) }))
	}
	first, last := each[0], each[1]
	for name, c := range map[string]struct{ first, last float64 }{
		"loss": {first.loss / first.n, last.loss / last.n}, "ratio": {first.ratio / first.n, last.ratio / last.n}, "kl": {first.kl / first.n, last.kl / last.n},
		"clip_fraction_low": {first.low / first.n, last.low / last.n}, "clip_fraction_high": {first.high / first.n, last.high / last.n},
	} {
		require.InDelta(t, (c.first+c.last)/2, v.Metrics["train/"+name], 1e-5, name)
		require.InDelta(t, c.last, v.Metrics["train/last_"+name], 1e-5, name)
	}
	require.InDelta(t, math.Max(first.most, last.most), v.Metrics["train/ratio_max"], 1e-5)
	require.InDelta(t, last.most, v.Metrics["train/last_ratio_max"], 1e-5)
	require.InDelta(t, first.mismatch/first.n, v.Metrics["train/mismatch"], 1e-5, "of the first update alone")
}

func TestTheMetricsOfACriticFollowFromItsValues(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	uncut(&s)
	s.Credit.Tokens = credit.GAE
	s.Critic = &spec.Critic{LearningRate: 0.01, Passes: 1}
	w.start(s)
	for step := 1; step <= 2; step++ {
		in := trainCritic(step, w.returned(step))
		v, err := do[activities.VersionResult](t, w.trainer().TrainCritic, in)
		require.NoError(t, err)
		before, after := w.critic(step-1), w.critic(step)
		b := w.decoded(in.Batch)
		values := w.valuesBy(t.Context(), before, b)
		var loss, value, meanRest, meanReturn, n float64
		for i, r := range b.Rows {
			for k, sampled := range r.Sampled {
				if sampled {
					x, target := values[i][k-1], float64(r.Returns[k])
					loss, value, meanRest, meanReturn, n = loss+(x-target)*(x-target)/2, value+x, meanRest+target-x, meanReturn+target, n+1
				}
			}
		}
		var rest, all float64
		for i, r := range b.Rows {
			for k, sampled := range r.Sampled {
				if sampled {
					target := float64(r.Returns[k])
					left, whole := target-values[i][k-1]-meanRest/n, target-meanReturn/n
					rest, all = rest+left*left, all+whole*whole
				}
			}
		}
		require.Positive(t, all)
		requireMetrics(t, map[string]float64{
			"critic/loss": loss / n, "critic/value_mean": value / n, "critic/explained_variance": 1 - rest/all,
			"critic/gradient_norm": w.norm(before.Manifest, after.Manifest),
		}, v.Metrics)
	}
}

// valuesBy returns the values of a batch's tokens by a version of the critic.
func (w *testEnv) valuesBy(ctx context.Context, v model.Version, b model.Batch) [][]float64 {
	w.t.Helper()
	c, _, err := checkpoint.Load(ctx, w.blobs, v.Manifest)
	require.NoError(w.t, err)
	engine, err := engines("native")
	require.NoError(w.t, err)
	critic, err := engine.NewCritic(c)
	require.NoError(w.t, err)
	defer critic.Close()
	values, err := critic.Values(ctx, b.EngineRows())
	require.NoError(w.t, err)
	out := make([][]float64, len(values))
	for i, row := range values {
		for _, x := range row {
			out[i] = append(out[i], float64(x))
		}
	}
	return out
}
