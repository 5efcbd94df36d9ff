package blob_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/store/blob"
)

func TestWhatLiesBesideAContentGoesWithIt(t *testing.T) {
	t.Parallel()
	s, directory := open(t)
	digest, err := s.Put(t.Context(), []byte("hello"))
	require.NoError(t, err)
	other, err := s.PutFrom(t.Context(), bytes.NewReader([]byte("other")))
	require.NoError(t, err)
	for _, d := range []string{digest, other} {
		for _, name := range []string{"native-1", "native-1.lock"} {
			require.NoError(t, os.WriteFile(s.Beside(d, name), []byte("made of it"), 0o444))
		}
	}
	again, err := blob.Open(directory)
	require.NoError(t, err)
	require.FileExists(t, again.Beside(digest, "native-1"), "its content is there")

	require.NoError(t, s.Remove(t.Context(), digest))
	require.NoFileExists(t, s.Beside(digest, "native-1"))
	require.NoFileExists(t, s.Beside(digest, "native-1.lock"))
	require.FileExists(t, s.Beside(other, "native-1"))
	has, err := s.Has(t.Context(), other)
	require.NoError(t, err)
	require.True(t, has)
}

// A process that had the content open made the file after the content was removed.
func TestFilesBesideNothingAreRemovedAtTheNextStart(t *testing.T) {
	t.Parallel()
	s, directory := open(t)
	digest, err := s.Put(t.Context(), []byte("hello"))
	require.NoError(t, err)
	require.NoError(t, s.Remove(t.Context(), digest))
	require.NoError(t, os.WriteFile(s.Beside(digest, "native-1"), []byte("late"), 0o444))
	_, err = blob.Open(directory)
	require.NoError(t, err)
	require.NoFileExists(t, s.Beside(digest, "native-1"))
}

func TestOnlyADigestHasSomethingBeside(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	require.Equal(t, helloDigest[len("sha256:"):]+".x", filepath.Base(s.Beside(helloDigest, "x")))
	for _, name := range []string{"", ".", "../x", "x/y"} {
		require.Empty(t, s.Beside(helloDigest, name))
	}
	require.Empty(t, s.Beside("sha256:12", "x"))
}
