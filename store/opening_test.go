package store_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/store"
)

// The processes of a fleet start at once, and whichever comes first makes the file.
func TestAFileIsOpenedByManyAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		path := filepath.Join(t.TempDir(), "new.db")
		var g errgroup.Group
		for range 8 {
			g.Go(func() error {
				s, err := store.Open(t.Context(), path, nil)
				if err != nil {
					return err
				}
				if err := s.Migrate(t.Context()); err != nil {
					return err
				}
				return s.Close()
			})
		}
		require.NoError(t, g.Wait())
	}
}
