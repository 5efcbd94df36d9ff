package native_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// canaryOf returns the canary that a trainer with the weights w writes.
func canaryOf(t *testing.T, kernelName string, a model.Architecture, w model.Weights) model.Canary {
	t.Helper()
	e := engine(kernelName, 2)
	tr, err := e.NewTrainer(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	defer tr.Close()
	c, err := model.NewCanary(t.Context(), e, a, tr)
	require.NoError(t, err)
	require.NotEmpty(t, c.Rows)
	return c
}

func TestTheDecoderReproducesItsTrainersCanariesToTheBit(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		w := weights(a, 1)
		c := canaryOf(t, kernelName, a, w)
		require.True(t, c.Exact)
		e := engine(kernelName, 3)
		require.NoError(t, c.Verify(t.Context(), e, decoder(t, e, a, w)))
	})
}

func TestOneOtherNumberInAnyTensorIsNoticed(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		c := canaryOf(t, kernelName, a, weights(a, 1))
		e := engine(kernelName, 1)
		for i := range a.Tensors() {
			w := weights(a, 1)
			at := 0
			if w[i].Name == "model.embed_tokens.weight" { // of a token that occurs
				at = int(c.Rows[0].Prompt[0]) * a.HiddenSize
			}
			w[i].Data[at] = w[i].Data[at]*1.01 + 0.01
			require.ErrorIs(t, c.Verify(t.Context(), e, decoder(t, e, a, w)), model.ErrWrongWeights, w[i].Name)
		}
	})
}

func TestWrongWeightsAreReportedWithPlaceAndNumbers(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	c := canaryOf(t, "", a, weights(a, 1))
	e := engine("", 1)
	c.Rows[2].Logprobs[5] -= 0.25
	err := c.Verify(t.Context(), e, decoder(t, e, a, weights(a, 1)))
	require.ErrorIs(t, err, model.ErrWrongWeights)
	require.ErrorContains(t, err, "canary 2, token 5")
	require.ErrorContains(t, err, fmt.Sprint(c.Rows[2].Logprobs[5]))
	require.ErrorContains(t, err, fmt.Sprint(c.Rows[2].Logprobs[5]+0.25))
}

func TestOtherArithmeticIsAllowedItsToleranceAndNoMore(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	e := engine("", 1)
	d := decoder(t, e, a, weights(a, 1))
	for _, off := range []float32{0, 5e-4, -5e-4, 5e-3, -5e-3} {
		c := canaryOf(t, "", a, weights(a, 1))
		c.Rows[1].Logprobs[0] += off
		here := c.Verify(t.Context(), e, d)
		c.Fingerprint = "another machine"
		there := c.Verify(t.Context(), e, d)
		require.Equal(t, off != 0, here != nil, "within one fingerprint")
		require.Equal(t, off*off > 1e-6, there != nil, "between two")
	}
}

func TestGivenTokensDisturbNobody(t *testing.T) {
	t.Parallel()
	a := architectures()["llama"]
	d := decoder(t, engine("", 2), a, weights(a, 1))
	request := requests(a, 4, 6)[1]
	want, err := d.Decode(t.Context(), request)
	require.NoError(t, err)
	scorer := d.(model.Scorer)
	got, err := scorer.Score(t.Context(), request.Prompt, want.Tokens)
	require.NoError(t, err)
	require.Equal(t, bits(want.Logprobs), bits(got), "what was sampled at temperature 1 has these log-probabilities")
	again, err := d.Decode(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, want, again)

	_, err = scorer.Score(t.Context(), make([]int32, a.MaxPositions-1), []int32{1, 2})
	require.ErrorIs(t, err, model.ErrPromptTooLong)
	_, err = scorer.Score(t.Context(), []int32{1}, []int32{int32(a.VocabSize)})
	require.ErrorContains(t, err, "outside the vocabulary")
	_, err = scorer.Score(t.Context(), []int32{1}, nil)
	require.Error(t, err)
}

func TestAModelWithoutRoomHasNoCanaries(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	for positions, rows := range map[int]int{1: 0, 2: 4, 3: 4} {
		a.MaxPositions = positions
		e := engine("", 1)
		tr, err := e.NewTrainer(model.Checkpoint{Architecture: a, Weights: weights(a, 1)})
		require.NoError(t, err)
		defer tr.Close()
		c, err := model.NewCanary(t.Context(), e, a, tr)
		require.NoError(t, err)
		require.Len(t, c.Rows, rows)
		require.NoError(t, c.Verify(t.Context(), e, decoder(t, e, a, weights(a, 1))))
	}
}
