package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
)

// ungated adds run "plain", which has no gate split and versions 0 to 10. Version 0 was
// promoted at the start.
func ungated(t *testing.T, s *fakeRecords) {
	t.Helper()
	_, _, err := s.store.CreateRun(t.Context(), record.Run{Name: "plain", Spec: []byte(`{"model":{"codec":"compact"}}`)})
	require.NoError(t, err)
	for n := range 11 {
		s.put(t, model.Version{
			VersionID: model.VersionID{Run: "plain", Policy: model.DefaultPolicy, Number: n}, Parent: n - 1,
			Manifest: s.versions[0].Manifest, Weights: s.versions[0].Weights,
		})
	}
	require.NoError(t, s.store.Promote(t.Context(), record.Promotion{Run: "plain", Policy: "main", DecisionID: "d", Version: 0, Previous: -1}))
}

func TestARunAloneMeansItsNewestVersionWhereNothingIsEvaluated(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	ungated(t, s)
	check := func(reference string, number int, want catalog.Choice) {
		t.Helper()
		v, choice, err := s.Choose(t.Context(), reference)
		require.NoError(t, err)
		require.Equal(t, number, v.Number, reference)
		require.Equal(t, want, choice, reference)
	}
	check("plain", 10, catalog.NewestUnevaluated)
	check("plain@newest", 10, catalog.Newest)
	check("plain@promoted", 0, catalog.PromotedUnevaluated)
	check("plain@3", 3, catalog.Numbered)
	check("demo", 0, catalog.Promoted)
	check("demo@promoted", 0, catalog.Promoted)

	names, err := s.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"plain@promoted", "plain@newest", "demo@promoted"}, names)

	// A person who promotes a version has looked at it.
	require.NoError(t, s.store.Promote(t.Context(), record.Promotion{
		Run: "plain", Policy: "main", DecisionID: "p", Version: 4, Previous: 0, Source: record.SourcePin, By: "ada@host",
	}))
	check("plain", 4, catalog.Promoted)
	check("plain@promoted", 4, catalog.Promoted)
}
