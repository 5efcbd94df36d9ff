package truncate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/truncate"
)

func TestATextIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][3]string{
		6: {"aäöb", "aäöb", "aäöb"},
		5: {"aäö", "aäö…", "äöb"},
		4: {"aä", "aä…", "öb"},
		3: {"aä", "aä…", "öb"},
		2: {"a", "a…", "b"},
		0: {"", "…", ""},
	} {
		got := [3]string{truncate.Head("aäöb", n), truncate.Ellipsis("aäöb", n), truncate.Tail("aäöb", n)}
		require.Equal(t, want, got, "%d bytes", n)
	}
}
