package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/chart"
)

func TestAnOutcomeHoldsANumberPerSeed(t *testing.T) {
	t.Parallel()
	var o outcome
	rising, flat := make([]float64, 20), make([]float64, 20)
	for i := range rising {
		rising[i], flat[i] = float64(i), 2
	}
	o.add(rising, 0.5)
	o.add(flat, 0.25)
	require.Equal(t, []float64{9.5, 2}, o.all)
	require.Equal(t, []float64{18.5, 2}, o.last, "the last two of twenty steps")
	require.Equal(t, []float64{0.5, 0.25}, o.test)
	require.Equal(t, chart.Point{X: 20, Y: 10.5}, o.series(" a").Points[19])
}

func TestVariantsAreComparedSeedBySeed(t *testing.T) {
	t.Parallel()
	require.Equal(t, []float64{1, -1}, differences([]float64{3, 1}, []float64{2, 2}))
}
