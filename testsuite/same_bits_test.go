package testsuite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// lagging returns the spec of a small run in which rollouts go on while a version is
// updated. It may have several updates in a step.
func lagging(lag, steps int) spec.Spec {
	s := small(steps)
	s.Training.Lag, s.Training.Passes, s.Training.Minibatches = lag, 1, 1
	if lag == 2 {
		s.Training.Passes, s.Training.Minibatches = 2, 2
	}
	s.Loss = spec.Loss{}
	return s.WithDefaults()
}

// adapting returns the spec of a run that trains a low-rank adapter over the demo's
// warm-started model.
func adapting(lag, steps int) spec.Spec {
	base, err := filepath.Abs("../examples/calc/warm")
	if err != nil {
		panic(err) // without a working directory no test runs
	}
	s := small(steps)
	s.Training.Lag, s.Training.Minibatches = lag, 2
	s.Model = spec.Model{Base: base, LoRA: &spec.LoRA{Rank: 4}}
	s.Training.Optimizer.LearningRate, s.Loss = 5e-3, spec.Loss{}
	return s.WithDefaults()
}

// critical returns the spec of a run with a critic. Its warm start is long enough that
// some rollouts of every step succeed.
func critical(lag, steps int) spec.Spec {
	s := small(steps)
	s.Training.Lag, s.Training.Minibatches = lag, 2
	s.Model.WarmStart.Updates = 500
	s.Credit, s.Loss = spec.Credit{Tokens: credit.GAE}, spec.Loss{}
	s.Critic = &spec.Critic{Passes: 2, Clip: 0.2}
	return s.WithDefaults()
}

func TestEqualRunsWithACriticEndInTheSameBits(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	st := sharedStack(t)
	names := []string{"critic-0", "critic-1"}
	var g errgroup.Group
	for _, name := range names {
		g.Go(func() error {
			_, err := train(ctx, st, name, critical(1, 4))
			return err
		})
	}
	require.NoError(t, g.Wait())
	seen := map[string]bool{}
	for _, policy := range []string{model.DefaultPolicy, model.CriticPolicy} {
		one, err := st.Store.Versions(ctx, names[0], policy)
		require.NoError(t, err)
		other, err := st.Store.Versions(ctx, names[1], policy)
		require.NoError(t, err)
		require.Len(t, one, 5)
		require.Len(t, other, 5)
		for i := range one {
			require.Equal(t, one[i].Weights, other[i].Weights, "%s", one[i].VersionID)
			seen[one[i].Weights] = true
		}
	}
	require.Len(t, seen, 10, "each step taught both")
	steps, err := st.Store.Steps(ctx, names[0], model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, steps, 4)
	for _, s := range steps {
		require.Contains(t, s.Metrics, "critic/explained_variance")
	}
}

// Runs that are under way at once share batches of the sampler, and no two of
// them get their rollouts back in the same order.
func TestEqualRunsUnderOtherNamesEndInTheSameBits(t *testing.T) {
	skipShort(t, "other tests run with a lag too, and are killed meanwhile")
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	const steps = 5 // enough for a version to be promoted with every lag
	kinds := map[string]spec.Spec{"lag-2": lagging(2, steps), "lora": adapting(1, 3)}
	if *everyKind {
		kinds["lag-0"], kinds["lag-1"] = lagging(0, steps), lagging(1, steps)
	}
	results := map[string][]workflows.TrainingResult{}
	for kind, of := range kinds {
		pair := make([]workflows.TrainingResult, 2)
		var g errgroup.Group
		for i := range pair {
			g.Go(func() (err error) {
				pair[i], err = train(ctx, st, fmt.Sprintf("%s-%d", kind, i), of)
				return err
			})
		}
		require.NoError(t, g.Wait())
		results[kind] = pair
	}
	for kind, pair := range results {
		require.Equal(t, pair[0].Weights, pair[1].Weights, kind)
		require.Equal(t, pair[0].Promoted, pair[1].Promoted, kind)
		require.Equal(t, pair[0].After.Mean, pair[1].After.Mean, kind)
	}
	if *everyKind {
		require.NotEqual(t, results["lag-0"][0].Weights, results["lag-1"][0].Weights, "a lag is another run")
	}
	adapters, err := st.Store.Versions(ctx, "lora-0", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, adapters, 4)
	for i, v := range adapters[1:] {
		require.NotEqual(t, adapters[i].Weights, v.Weights, "%s: each step taught the adapter", v.VersionID)
	}
}
