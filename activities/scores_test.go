package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// The second pass sees a policy that the first pass has changed. The scores are those
// before the change.
func TestAVersionKeepsWhatItsTrainerGaveEachTokenFirst(t *testing.T) {
	t.Parallel()
	w, _, b, _ := stepOf(t, func(s *spec.Spec) { s.Training.Passes = 2 })
	v, err := w.version(1)
	require.NoError(t, err)
	file, err := w.blobs.Get(t.Context(), v.Scores)
	require.NoError(t, err)
	scores, err := hf.DecodeScores(file)
	require.NoError(t, err)
	require.Equal(t, v.Batch, scores.Batch)

	parent, err := w.version(0)
	require.NoError(t, err)
	require.Empty(t, parent.Scores, "nothing is trained on")
	c, _, err := checkpoint.Load(t.Context(), w.blobs, parent.Manifest)
	require.NoError(t, err)
	engine, err := engines("native")
	require.NoError(t, err)
	trainer, err := engine.NewTrainer(c)
	require.NoError(t, err)
	defer trainer.Close()
	rows := make([]model.Row, len(b.Rows))
	for i, r := range b.Rows {
		rows[i] = r.Row
	}
	logprobs, entropies, err := trainer.Score(t.Context(), rows)
	require.NoError(t, err)
	n := 0
	for i, r := range b.Rows {
		for k, sampled := range r.Sampled {
			if sampled {
				require.InDelta(t, logprobs[i][k-1], scores.Logprobs[n], 1e-6)
				require.InDelta(t, entropies[i][k-1], scores.Entropies[n], 1e-6)
				n++
			}
		}
	}
	require.Len(t, scores.Logprobs, n)
	require.Positive(t, n)
}
