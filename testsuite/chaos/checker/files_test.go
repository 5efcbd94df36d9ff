package checker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

func TestMissingFilesOfVersionsThatRunsNeedAreFound(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "fulgurite.db") },
		"postgres": func(t *testing.T) string { return pgtest.URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			s, err := store.Open(t.Context(), at, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			require.NoError(t, s.Migrate(t.Context()))
			directory := t.TempDir()
			blobs, err := blob.Open(directory)
			require.NoError(t, err)
			s.Files = blobs
			_, _, err = s.CreateRun(t.Context(), record.Run{Name: "chaos", Spec: []byte(`{}`)})
			require.NoError(t, err)
			var weights []string
			for number := range 3 {
				digest, err := blobs.Put(t.Context(), fmt.Appendf(nil, "weights %d", number))
				require.NoError(t, err)
				manifest, err := blobs.Put(t.Context(), fmt.Appendf(nil, `{"files": {"weights.safetensors": {"digest": %q}}}`, digest))
				require.NoError(t, err)
				_, _, err = s.PutVersion(t.Context(), model.Version{
					VersionID: model.VersionID{Run: "chaos", Policy: model.DefaultPolicy, Number: number}, Parent: number - 1, Manifest: manifest, Weights: digest,
				})
				require.NoError(t, err)
				path, err := blobs.Path(digest)
				require.NoError(t, err)
				weights = append(weights, path)
			}
			db, err := checker.OpenDatabase(at)
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			files := func() checker.Files {
				f, err := db.Files(t.Context(), directory)
				require.NoError(t, err)
				return f
			}
			require.Empty(t, cmp.Diff(checker.Files{Checked: 2}, files()), "the newest: its manifest and its weights")
			require.NoError(t, os.Remove(weights[0]))
			require.NoError(t, os.Remove(weights[1]))
			require.Empty(t, cmp.Diff(checker.Files{Checked: 2, Pruned: 2}, files()))
			require.NoError(t, os.Remove(weights[2]))
			missing := files()
			require.Len(t, missing.Wrong, 1)
			require.Contains(t, missing.Wrong[0], "version 2 of main of run chaos")
			require.NoError(t, os.WriteFile(weights[2], []byte("weights 3"), 0o600))
			require.Contains(t, files().Wrong[0], "its content is not what its name says")
			for i, text := range []string{`{}`, `{"policies": {"writer": {}}}`} {
				manifest, err := blobs.Put(t.Context(), []byte(text))
				require.NoError(t, err)
				_, _, err = s.PutVersion(t.Context(), model.Version{
					VersionID: model.VersionID{Run: "chaos", Policy: model.DefaultPolicy, Number: 3 + i}, Parent: 2 + i, Manifest: manifest, Weights: manifest,
				})
				require.NoError(t, err)
			}
			require.NotContains(t, strings.Join(files().Wrong, "\n"), "version 4", "a joint version has no files")
			require.Contains(t, strings.Join(files().Wrong, "\n"), "names neither files nor policies")
		})
	}
}
