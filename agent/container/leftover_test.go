package container_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent/container"
)

func TestContainersOfHomesOfTheSamePathHaveDifferentNames(t *testing.T) {
	t.Parallel()
	scratch := filepath.Join(t.TempDir(), "scratch")
	name := func() string {
		require.NoError(t, os.Mkdir(scratch, 0o700))
		one, err := container.Name(filepath.Join(scratch, "home"))
		require.NoError(t, err)
		again, err := container.Name(filepath.Join(scratch, "home"))
		require.NoError(t, err)
		require.Equal(t, one, again)
		other, err := container.Name(filepath.Join(scratch, "other"))
		require.NoError(t, err)
		require.NotEqual(t, one, other)
		return one
	}
	first := name()
	require.NoError(t, os.Rename(scratch, scratch+"-of-another-service"))
	require.NotEqual(t, first, name())
	_, err := container.Name(filepath.Join(scratch, "none", "home"))
	require.ErrorContains(t, err, "name the container of a home")
}
