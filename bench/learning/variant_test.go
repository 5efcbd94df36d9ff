package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

func TestEveryCombinationIsAVariant(t *testing.T) {
	t.Parallel()
	all, err := variants([]string{"training.lag=0,2", "loss.correction=none,decoupled"})
	require.NoError(t, err)
	var names []string
	for _, v := range all {
		names = append(names, v.name)
	}
	require.Equal(t, []string{"lag=0 correction=none", "lag=0 correction=decoupled", "lag=2 correction=none", "lag=2 correction=decoupled"}, names)
	_, err = variants([]string{"training.lag"})
	require.Error(t, err)
}

func TestAVariantChangesItsKeysAlone(t *testing.T) {
	t.Parallel()
	base, err := spec.Load("../../examples/maze/spec.yaml")
	require.NoError(t, err)
	all, err := variants([]string{"credit.assignment=identical,discounted,gigpo,value_difference,turn_gae"})
	require.NoError(t, err)
	for _, v := range all {
		s, err := v.apply(base)
		require.NoError(t, err, v.name)
		require.Equal(t, base.Training, s.Training)
		require.Equal(t, v.keys["credit.assignment"], string(s.Credit.Assignment))
		require.Equal(t, s.Credit.UsesCritic(), s.WithDefaults().Critic != nil)
	}
}
