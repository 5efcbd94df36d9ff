package torch_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/store/blob"
)

// wide returns an architecture with tensors whose moments are kept in 8 bits, some in
// rows of more than a block.
func wide() model.Architecture {
	a := small()
	a.HiddenSize, a.FeedForward, a.VocabSize = 32, 270, 150
	return a
}

// afterStore writes c to blobs and returns what is read from them.
func afterStore(t *testing.T, c model.Checkpoint) model.Checkpoint {
	t.Helper()
	b, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	digest, _, err := checkpoint.Save(t.Context(), b, c, model.Manifest{Policy: "main", Number: 1, Codec: "compact", Engine: "torch", Fingerprint: "f"})
	require.NoError(t, err)
	c, _, err = checkpoint.Load(t.Context(), b, digest)
	require.NoError(t, err)
	return c
}

func TestTrainingWithMomentsInEightBitsGoesOnFromFiles(t *testing.T) {
	t.Parallel()
	e, c := shared(t), start(wide())
	c.Moments = model.MomentsInt8
	straight := trainer(t, e, c)
	for range 3 {
		_, err := straight.Update(t.Context(), rows(), slopes, adamW())
		require.NoError(t, err)
		resumed := trainer(t, e, c)
		_, err = resumed.Update(t.Context(), rows(), slopes, adamW())
		require.NoError(t, err)
		c = afterStore(t, resumed.Checkpoint())
	}
	want := straight.Checkpoint()
	require.Empty(t, cmp.Diff(want, c))
	require.Equal(t, model.MomentsInt8, c.Moments)

	// The same files are opened with moments in F32, and with a type that does not exist.
	c.Moments = model.MomentsF32
	require.Empty(t, cmp.Diff(c, trainer(t, e, c).Checkpoint()))
	c.Moments = "int4"
	_, err := e.NewTrainer(c)
	require.ErrorContains(t, err, `moments "int4"`)
}

// likelihoodAfter returns the mean log-probability of the rows after some updates that
// raise it.
func likelihoodAfter(t *testing.T, e *torch.Engine, moments string, updates int) float64 {
	t.Helper()
	c := start(wide())
	c.Moments = moments
	tr := trainer(t, e, c)
	mean := func() float64 {
		logprobs, _, err := tr.Score(t.Context(), rows())
		require.NoError(t, err)
		sum, n := 0.0, 0
		for _, row := range logprobs {
			for _, x := range row {
				sum, n = sum+float64(x), n+1
			}
		}
		return sum / float64(n)
	}
	for range updates {
		_, err := tr.Update(t.Context(), rows(), func(_ int, logprobs, _, gradient, _ []float32) {
			for i := range logprobs {
				gradient[i] = -1
			}
		}, model.AdamW{LearningRate: 2e-3, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-8, ClipNorm: 1})
		require.NoError(t, err)
	}
	return mean()
}

// After the same updates the difference is less than a fiftieth of what was learned.
func TestMomentsInEightBitsLearnAsThoseInF32Do(t *testing.T) {
	t.Parallel()
	e := shared(t)
	before := likelihoodAfter(t, e, model.MomentsF32, 0)
	want, got := likelihoodAfter(t, e, model.MomentsF32, 60), likelihoodAfter(t, e, model.MomentsInt8, 60)
	t.Logf("mean log-probability: %.4f before, %.4f with F32, %.4f with 8 bits", before, want, got)
	require.Greater(t, want, before/2, "something was learned")
	require.InDelta(t, want, got, 0.02*(want-before))
}

func TestAModelThatIsOnlyScoredScoresAsOneThatIsTrained(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for name, c := range spreadModels() {
		scorer, err := e.NewRowScorer(c)
		require.NoError(t, err, name)
		defer scorer.Close()
		tr := trainer(t, e, c)
		for range 2 { // it leaves the device for each update
			got, gotEntropies, err := scorer.Score(t.Context(), rows())
			require.NoError(t, err)
			want, wantEntropies, err := trainer(t, e, c).Score(t.Context(), rows())
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(want, got), name)
			require.Empty(t, cmp.Diff(wantEntropies, gotEntropies), name)
			_, err = tr.Update(t.Context(), rows(), slopes, adamW())
			require.NoError(t, err)
		}
	}
}
