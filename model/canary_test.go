package model_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

func canary() model.Canary {
	return model.Canary{
		Format: model.CanaryFormat, Fingerprint: "f", Exact: true, Tolerance: 1e-3,
		Rows: []model.CanaryRow{{Prompt: []int32{1}, Tokens: []int32{2, 3}, Logprobs: []float32{-0.1, -1.0 / 3}}},
	}
}

func TestACanaryIsReadToTheBit(t *testing.T) {
	t.Parallel()
	text, err := canary().Encode()
	require.NoError(t, err)
	again, err := canary().Encode()
	require.NoError(t, err)
	require.Equal(t, text, again)
	got, err := model.ParseCanary(text)
	require.NoError(t, err)
	require.Equal(t, canary(), got)
}

func TestACanaryThatSaysNothingIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*model.Canary){
		"format":    func(c *model.Canary) { c.Format = "fulgurite.canary/9" },
		"tolerance": func(c *model.Canary) { c.Tolerance = math.NaN() },
		"infinite":  func(c *model.Canary) { c.Tolerance = math.Inf(1) },
		"prompt":    func(c *model.Canary) { c.Rows[0].Prompt = nil },
		"tokens":    func(c *model.Canary) { c.Rows[0].Tokens = nil },
		"short":     func(c *model.Canary) { c.Rows[0].Logprobs = c.Rows[0].Logprobs[1:] },
		"number":    func(c *model.Canary) { c.Rows[0].Logprobs[1] = float32(math.Inf(-1)) },
	} {
		c := canary()
		spoil(&c)
		_, err := c.Encode()
		require.ErrorIs(t, err, model.ErrCanary, name)
	}
	_, err := model.ParseCanary([]byte("{"))
	require.ErrorIs(t, err, model.ErrCanary)
}
