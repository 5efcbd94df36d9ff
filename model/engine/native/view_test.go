package native_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// The models have sizes with and without padding, and tied and untied embeddings. A view
// shows what a copy holds, and takes memory only for padded tensors.
func TestAViewIsTheCheckpointWithoutACopy(t *testing.T) {
	t.Parallel()
	padded := model.Architecture{
		VocabSize: 40, HiddenSize: 12, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 6,
		FeedForward: 20, MaxPositions: 16, RopeTheta: 10000, NormEpsilon: 1e-6, QKVBias: true, QKNorm: true,
	}
	dense := model.Architecture{
		VocabSize: 512, HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 32,
		FeedForward: 128, MaxPositions: 16, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
	for name, a := range map[string]model.Architecture{"padded": padded, "dense": dense} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := model.Checkpoint{Architecture: a, Weights: a.Init(1), Updates: 3, Mean: a.Init(2), Variance: a.Init(3)}
			trainer, err := native.New(native.Options{Threads: 1}).NewTrainer(c)
			require.NoError(t, err)
			defer trainer.Close()
			view := trainer.(model.Viewer).View()
			require.Empty(t, cmp.Diff(trainer.Checkpoint(), view))
			require.NoError(t, a.Match(view.Weights))
			again := trainer.(model.Viewer).View()
			require.Equal(t, name == "dense", &view.Weights[0].Data[0] == &again.Weights[0].Data[0])
		})
	}
}
