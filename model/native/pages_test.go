package native

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

func TestFreePagesAreGivenBackToTheSystem(t *testing.T) {
	t.Parallel()
	p := newPages(newLayout(model.Architecture{
		VocabSize: 8, HiddenSize: 64, Layers: 8, Heads: 8, KVHeads: 8, HeadDim: 64, FeedForward: 64, MaxPositions: 4096, RopeTheta: 1e4, NormEpsilon: 1e-5,
	}))
	held := p.reserve(nil, 10*pagePositions)
	require.Len(t, held, 10)
	p.release(held[2:])
	held = p.reserve(held[:2:2], 5*pagePositions)
	require.Len(t, held, 5)
	require.Len(t, p.free, 5, "pages that are free are lent first")
	p.trim(3 * p.size)
	require.Len(t, p.free, 3)
	p.trim(0)
	require.Empty(t, p.free)
	require.Len(t, held[4].Data(), p.size, "what is lent stays")
}
