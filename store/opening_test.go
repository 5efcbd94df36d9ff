package store_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/store"
)

// openTogether opens each of several new files many times at the same moment, as the
// processes of a fleet do when they start together.
func openTogether(t *testing.T, files int, then func(*store.Store) error) {
	t.Helper()
	for range files {
		path := filepath.Join(t.TempDir(), "new.db")
		begin := make(chan struct{})
		var g errgroup.Group
		for range 8 {
			g.Go(func() error {
				<-begin
				s, err := store.Open(t.Context(), path, nil)
				if err != nil {
					return err
				}
				if err := then(s); err != nil {
					return err
				}
				return s.Close()
			})
		}
		close(begin)
		require.NoError(t, g.Wait())
	}
}

func TestAFileIsOpenedByManyAtOnce(t *testing.T) {
	t.Parallel()
	openTogether(t, 300, func(*store.Store) error { return nil })
}

func TestAFileIsMigratedByManyAtOnce(t *testing.T) {
	t.Parallel()
	openTogether(t, 4, func(s *store.Store) error { return s.Migrate(t.Context()) })
}
