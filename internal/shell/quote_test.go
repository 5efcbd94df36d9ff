package shell_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/shell"
)

func TestAShellReadsTheWord(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"a", "/tmp/a b", "it's", "", "$HOME", "`id`", "a\"b", "~x", "*", "a\nb", "-n", "ä", "a;b", "!x", "#c"} {
		out, err := exec.Command("sh", "-c", "printf %s "+shell.Quote(word)).Output()
		require.NoError(t, err, word)
		require.Equal(t, word, string(out))
	}
	require.Equal(t, "/tmp/state", shell.Quote("/tmp/state"))
}
