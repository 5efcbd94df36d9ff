package testsuite_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// lagging is a small run in which rollouts go on while a version is updated, with
// several updates a step.
func lagging(lag, steps int) spec.Spec {
	s := small(steps)
	s.Training.Lag, s.Training.Passes, s.Training.Minibatches = lag, 1, 1
	if lag == 2 {
		s.Training.Passes, s.Training.Minibatches = 2, 2
	}
	s.Loss = spec.Loss{}
	return s.WithDefaults()
}

// Runs that are under way at once share batches of the sampler, and no two of
// them get their rollouts back in the same order.
func TestEqualRunsUnderOtherNamesEndInTheSameBits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := start(ctx, t, t.TempDir())
	defer func() { require.NoError(t, st.Close()) }()
	results := map[int][]workflows.TrainingResult{}
	for lag := range 3 {
		results[lag] = make([]workflows.TrainingResult, 2)
		var g errgroup.Group
		for i := range results[lag] {
			g.Go(func() (err error) {
				results[lag][i], err = train(ctx, st, fmt.Sprintf("lag-%d-%d", lag, i), lagging(lag, 5))
				return err
			})
		}
		require.NoError(t, g.Wait())
	}
	for lag, pair := range results {
		require.Equal(t, pair[0].Weights, pair[1].Weights, "lag %d", lag)
		require.Equal(t, pair[0].Promoted, pair[1].Promoted, "lag %d", lag)
		require.Equal(t, pair[0].After.Mean, pair[1].After.Mean, "lag %d", lag)
	}
	require.NotEqual(t, results[0][0].Weights, results[1][0].Weights, "a lag is another run")
}
