package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// This test lies in the command's own package, because package main can't be imported.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	for name, want := range files() {
		have, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, string(have)), "%s: run go generate in model/engine/native/kernel", name)
	}
}
