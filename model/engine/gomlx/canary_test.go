package gomlx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// The trainer and the sampler of a run may use different engines.
func TestCanariesOfAnotherEngineAreReproducedWithinTheirTolerance(t *testing.T) {
	t.Parallel()
	a := small()
	e := engine(t, gomlx.Options{})
	other := native.New(native.Options{Threads: 1})
	for _, from := range []model.Engine{e, other} {
		tr, err := from.NewTrainer(model.Checkpoint{Architecture: a, Weights: weights(a)})
		require.NoError(t, err)
		defer tr.Close()
		c, err := model.NewCanary(t.Context(), from, a, tr)
		require.NoError(t, err)
		require.NoError(t, c.Verify(t.Context(), e, decoder(t, gomlx.Options{}, a)))
		c.Rows[3].Logprobs[7] += 0.01
		require.ErrorIs(t, c.Verify(t.Context(), e, decoder(t, gomlx.Options{}, a)), model.ErrWrongWeights)
	}
}
