package torch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPassesAreAsLargeAsActivationsCanBeKept(t *testing.T) {
	for _, c := range []struct{ tokens, limit, want int }{
		{tokens: 800, limit: 8192, want: 800},
		{tokens: 100_000, limit: 8192, want: 8192},
		{tokens: 0, limit: 8192, want: 8192}, // they can't be kept whatever the pass
	} {
		require.Equal(t, c.want, opened{Tokens: c.tokens}.most(c.limit))
	}
}
