package hf_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

func TestScoresRoundTrip(t *testing.T) {
	t.Parallel()
	unknown := float32(math.NaN())
	file, err := hf.EncodeScores(model.Scores{Batch: "sha256:b", Logprobs: []float32{-0.5, unknown}, Entropies: []float32{1.25, unknown}})
	require.NoError(t, err)
	got, err := hf.DecodeScores(file)
	require.NoError(t, err)
	require.Equal(t, "sha256:b", got.Batch)
	require.InDelta(t, -0.5, got.Logprobs[0], 0)
	require.InDelta(t, 1.25, got.Entropies[0], 0)
	require.True(t, math.IsNaN(float64(got.Logprobs[1])) && math.IsNaN(float64(got.Entropies[1])))
	again, err := hf.EncodeScores(got)
	require.NoError(t, err)
	require.Equal(t, file, again)
}

func TestInconsistentScoresAreRefused(t *testing.T) {
	t.Parallel()
	const text = `{"format":"fulgurite.scores/1","batch":"sha256:b"}`
	for want, of := range map[string]struct {
		text   string
		arrays map[string]any
	}{
		"array entropies is absent":                    {text, map[string]any{"logprobs": []float32{-1}}},
		"array logprobs holds []int32":                 {text, map[string]any{"logprobs": []int32{1}, "entropies": []float32{1}}},
		"1 log-probabilities with 2 entropies":         {text, map[string]any{"logprobs": []float32{-1}, "entropies": []float32{1, 2}}},
		"batch is empty":                               {`{"format":"fulgurite.scores/1"}`, map[string]any{"logprobs": []float32{}, "entropies": []float32{}}},
		`format is "other", want "fulgurite.scores/1"`: {`{"format":"other"}`, map[string]any{}},
	} {
		_, err := hf.DecodeScores(encodeUnder(t, "scores", of.arrays, of.text))
		require.ErrorContains(t, err, want)
	}
	_, err := hf.DecodeScores([]byte("no file"))
	require.ErrorIs(t, err, hf.ErrFormat)
}
