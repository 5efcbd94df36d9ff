package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

func TestRangesAreWhatTheyWereMadeOf(t *testing.T) {
	t.Parallel()
	for text, ids := range map[model.TokenRanges][]int32{"": nil, "0": {0}, "2-4,9": {2, 3, 4, 9}, "0,2,4-5": {0, 2, 4, 5}} {
		has := map[int32]bool{}
		for _, id := range ids {
			has[id] = true
		}
		require.Equal(t, text, model.RangesOf(10, func(id int32) bool { return has[id] }))
		require.Equal(t, len(ids), text.Tokens())
		for id := range int32(12) {
			require.Equal(t, has[id], text.Has(id), "%q: %d", text, id)
		}
	}
	a := model.Tiny(11)
	for _, bad := range []model.TokenRanges{"x", "3-2", "4,2", "2,3", "11", "0-10", ",", "-1", "1-"} {
		a.Unused = bad
		require.ErrorIs(t, a.Check(), model.ErrArchitecture, "%q", bad)
	}
	a.Unused = "0,9-10"
	require.NoError(t, a.Check())
}
