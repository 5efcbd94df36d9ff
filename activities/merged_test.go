package activities_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/spec"
)

// mergedTolerance is relative to the length of the gradient. In float32, the same sum
// over other rows differed by at most 2e-7 of it.
const mergedTolerance = 1e-5

func objectives() map[string]spec.Loss {
	kl := func(estimator credit.Estimator) *spec.KL { return &spec.KL{Estimator: estimator, Weight: 0.5} }
	return map[string]spec.Loss{
		"ppo_clip":               {Type: credit.LossPPOClip},
		"ppo_clip, KL, entropy":  {Type: credit.LossPPOClip, KL: kl("k3"), Entropy: 0.05, Aggregation: "sequence_mean"},
		"gspo":                   {Type: credit.LossGSPO, ClipLow: 0.03, ClipHigh: 0.04},
		"gspo, KL":               {Type: credit.LossGSPO, ClipLow: 0.03, ClipHigh: 0.04, KL: kl("unbiased"), Aggregation: "constant"},
		"ppo_clip, decoupled":    {Type: credit.LossPPOClip, Correction: credit.Decoupled, ImportanceCap: 1.2},
		"cispo, sequence":        {Type: credit.LossCISPO, Correction: credit.Sequence, ImportanceCap: 1.1},
		"ppo_clip, geometric":    {Type: credit.LossPPOClip, Correction: credit.Geometric, ImportanceFloor: 0.95, ImportanceCap: 1.05},
		"importance_sampling k3": {Type: credit.LossImportanceSampling, Correction: credit.K3, ImportanceCap: 0.06},
	}
}

// A merged row holds several calls. The loss of a call must not depend on the other calls
// in its row.
func TestMergedCallsTeachWhatTheyTeachOneByOne(t *testing.T) {
	t.Parallel()
	g, err := gomlx.New(gomlx.Options{})
	require.NoError(t, err)
	for _, e := range []model.Engine{native.New(native.Options{Threads: 1}), g} {
		for name, loss := range objectives() {
			if e.Name() != "native" && loss.Correction != "" {
				continue // a correction changes nothing that an engine sees
			}
			t.Run(e.Name()+" "+name, func(t *testing.T) {
				t.Parallel()
				merged, apart := updateTwice(t, e, loss)
				require.Less(t, distance(merged.gradient, apart.gradient), mergedTolerance)
				for _, name := range []string{"train/loss", "train/ratio", "train/ratio_max", "train/clip_fraction", "train/kl", "train/kl_ref", "train/entropy", "train/rejected"} {
					require.InDelta(t, apart.metrics[name], merged.metrics[name], 1e-5, name)
				}
				if loss.KL != nil {
					require.Positive(t, merged.metrics["train/kl_ref"])
				}
				if loss.Correction == credit.Geometric || loss.Correction == credit.K3 {
					require.Positive(t, merged.metrics["train/rejected"])
					require.Less(t, merged.metrics["train/rejected"], 1.0)
				}
				if loss.Type == credit.LossGSPO {
					require.Positive(t, merged.metrics["train/clip_fraction_low"])
					require.Positive(t, merged.metrics["train/clip_fraction_high"])
					require.Less(t, merged.metrics["train/clip_fraction"], 1.0)
				}
			})
		}
	}
}

// updated has the effects of one update.
type updated struct {
	gradient []float64
	metrics  map[string]float64
}

// updateTwice makes version 2 from the same conversations twice, with calls merged and
// separate. Version 1 would not do, because its parent is the reference itself.
func updateTwice(t *testing.T, e model.Engine, loss spec.Loss) (merged, apart updated) {
	w := newTestEnv(t)
	s := w.spec()
	s.Loss, s.Training.Optimizer.ClipNorm = loss, 1e9
	w.start(s)
	trainer := func(w *testEnv) *activities.Trainer {
		t := w.trainer()
		t.Engines = func(string) (model.Engine, error) { return e, nil }
		return t
	}
	_, err := do[activities.VersionResult](t, trainer(w).TrainStep, trainStep(1, w.batch(1, sampledAt)))
	require.NoError(t, err)
	of, by := w.conversations(2, e)
	one := func(batch string) updated {
		other := w.copied(t)
		defer other.discard()
		tr := trainer(other)
		defer tr.Close()
		v, err := do[activities.VersionResult](t, tr.TrainStep, trainStep(2, batch))
		require.NoError(t, err)
		return updated{other.gradient(2), v.Metrics}
	}
	return one(of), one(by)
}

// gradient returns the gradient, up to a factor, of the one update that made a version.
// It is computed from the change of the optimizer's mean.
func (w *testEnv) gradient(number int) []float64 {
	w.t.Helper()
	s := w.spec().WithDefaults()
	before, _, err := checkpoint.Load(w.t.Context(), w.blobs, w.manifest(number-1))
	require.NoError(w.t, err)
	after, _, err := checkpoint.Load(w.t.Context(), w.blobs, w.manifest(number))
	require.NoError(w.t, err)
	var out []float64
	for name, x := range after.Mean {
		for i, v := range x.Data {
			out = append(out, float64(v)-s.Training.Optimizer.Beta1*float64(before.Mean[name].Data[i]))
		}
	}
	return out
}

// distance returns |a − b| / |b|.
func distance(a, b []float64) float64 {
	var apart, size float64
	for i := range a {
		apart += (a[i] - b[i]) * (a[i] - b[i])
		size += b[i] * b[i]
	}
	return math.Sqrt(apart / size)
}
