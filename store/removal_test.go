package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/store"
)

func TestARemovalFollowsWhatItsLastTransactionTook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows, changed int
		took          time.Duration
		want          int
	}{
		"short and full":             {16, 16, time.Millisecond, 32},
		"short, but cut by its time": {1000, 100, time.Millisecond, 1000},
		"as long as it should be":    {100, 100, 20 * time.Millisecond, 100},
		"too long":                   {1000, 1000, 31 * time.Millisecond, 500},
		"ten times too long":         {1000, 1000, 200 * time.Millisecond, 100},
		"a few rows took very long":  {1000, 10, 400 * time.Millisecond, 1},
		"one row takes too long":     {1, 1, time.Second, 1},
		"the most":                   {4096, 4096, time.Millisecond, 4096},
	} {
		require.Equal(t, c.want, store.NextRows(c.rows, c.changed, c.took), name)
	}
}
