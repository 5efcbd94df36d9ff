package activities_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

const capAt = 1.2

func decoupled(s *spec.Spec) {
	s.Loss.Correction, s.Loss.ImportanceCap = credit.Decoupled, capAt
}

// proximal scores the batch's rows by the version from which the step started,
// independently of TrainStep.
func (w *testEnv) proximal(b model.Batch) [][]float32 {
	w.t.Helper()
	c, _, err := checkpoint.Load(w.t.Context(), w.blobs, w.manifest(0))
	require.NoError(w.t, err)
	e, err := engines("native")
	require.NoError(w.t, err)
	tr, err := e.NewTrainer(c)
	require.NoError(w.t, err)
	defer tr.Close()
	logprobs, _, err := tr.Score(w.t.Context(), b.EngineRows())
	require.NoError(w.t, err)
	return logprobs
}

func TestTheProximalPolicyIsTheStepsParent(t *testing.T) {
	t.Parallel()
	w, v, b, seen := stepOf(t, func(s *spec.Spec) {
		decoupled(s)
		s.Training.Passes = 2
	})
	require.Len(t, seen, 2)
	proximal := w.proximal(b)
	n, importance, squares, capped, staleness := 0.0, 0.0, 0.0, 0.0, 0.0
	for i, r := range b.Rows {
		for j := range proximal[i] {
			if !r.Sampled[j+1] {
				continue
			}
			gap := float64(proximal[i][j]) - float64(r.Logprobs[j+1])
			weight := math.Min(math.Exp(gap), capAt)
			n, importance, staleness = n+1, importance+weight, staleness+math.Abs(gap)
			squares += weight * weight
			if math.Exp(gap) > capAt {
				capped++
			}
			for u, m := range seen {
				a := float64(r.Advantages[j+1])
				ratio := math.Exp(float64(m.logprobs[i][j]) - float64(proximal[i][j]))
				if u == 0 {
					require.InDelta(t, 1, ratio, 0, "the first update starts from it, to the bit")
				}
				want := -weight * ratio * a / float64(b.Denominators.Tokens)
				if (a > 0 && ratio > 1.28) || (a < 0 && ratio < 0.8) {
					want = 0
				}
				require.InDelta(t, want, m.gradient[i][j], 1e-7, "update %d", u)
			}
		}
	}
	require.Greater(t, capped, 0.0)
	require.Less(t, capped, n)
	require.InDelta(t, importance/n, v.Metrics["train/importance_mean"], 1e-9)
	require.InDelta(t, capped/n, v.Metrics["train/importance_capped"], 1e-9)
	require.InDelta(t, staleness/n, v.Metrics["train/staleness"], 1e-9)
	require.InDelta(t, importance*importance/(n*squares), v.Metrics["train/importance_ess"], 1e-9)
	require.Zero(t, v.Metrics["train/rejected"], "this correction cuts weights")
	require.NotEqual(t, 1.0, v.Metrics["train/last_ratio"])
}

func TestWithoutCorrectionTheRatioIsToTheVersionThatSampled(t *testing.T) {
	t.Parallel()
	_, v, b, seen := stepOf(t, func(s *spec.Spec) { s.Training.Lag, s.Loss.Correction = 2, "none" })
	require.Len(t, seen, 1)
	for i, r := range b.Rows {
		for j, g := range seen[0].gradient[i] {
			ratio, a := math.Exp(float64(seen[0].logprobs[i][j])-float64(r.Logprobs[j+1])), float64(r.Advantages[j+1])
			want := -ratio * a / float64(b.Denominators.Tokens)
			if !r.Sampled[j+1] || (a > 0 && ratio > 1.28) || (a < 0 && ratio < 0.8) {
				want = 0
			}
			require.InDelta(t, want, g, 1e-7)
		}
	}
	require.NotContains(t, v.Metrics, "train/importance_mean")
}

func TestTheCorrectionChangesNothingWithoutLag(t *testing.T) {
	t.Parallel()
	weights := map[credit.CorrectionKind]string{}
	for _, correction := range []credit.CorrectionKind{credit.Uncorrected, credit.Decoupled} {
		w := newTestEnv(t)
		s := w.spec()
		s.Loss.Correction = correction
		w.start(s)
		weights[correction] = w.ownStep().Weights
	}
	require.Equal(t, weights[credit.Uncorrected], weights[credit.Decoupled])
}

// ownStep makes step 1 on a batch that has the parent's own log-probabilities.
func (w *testEnv) ownStep() activities.VersionResult {
	w.t.Helper()
	data, err := w.blobs.Get(w.t.Context(), w.groups(1, 2))
	require.NoError(w.t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(w.t, err)
	for i, logprobs := range w.proximal(b) {
		for j, l := range logprobs {
			if b.Rows[i].Sampled[j+1] {
				b.Rows[i].Logprobs[j+1] = l
			}
		}
	}
	data, err = hf.EncodeBatch(b)
	require.NoError(w.t, err)
	digest, err := w.blobs.Put(w.t.Context(), data)
	require.NoError(w.t, err)
	v, err := do[activities.VersionResult](w.t, w.trainer().TrainStep, trainStep(1, digest))
	require.NoError(w.t, err)
	return v
}
