package state

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/fleet"
)

// RecordFlags are of commands that work on the records of a fleet too.
type RecordFlags struct {
	Store string `help:"Store to use instead of that of --dir: postgres://… or the path of an SQLite file." env:"FULGURITE_STORE" placeholder:"URL"`
	Blobs string `help:"Directory of blobs to use instead of that of --dir." env:"FULGURITE_BLOBS" placeholder:"DIR" type:"path"`
}

// OpenRecords opens a store and blobs, also while a stack runs. It brings the schema of
// the directory's own store up to date, and leaves that of a fleet to the fleet.
func (s *Flags) OpenRecords(ctx context.Context, t *terminal.Terminal, r RecordFlags) (fleet.Records, error) {
	url, own := r.Store, r.Store == ""
	if own {
		url = s.Layout().Database()
	}
	if path := strings.TrimPrefix(url, "sqlite://"); !strings.Contains(path, "://") {
		switch _, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist) && own:
			return fleet.Records{}, terminal.Usagef("no runs in %s: choose the directory with --dir, or start with `fulgurite demo`", s.Dir)
		case errors.Is(err, fs.ErrNotExist):
			return fleet.Records{}, terminal.Usagef("no store at %s", path) // opening it would make one
		}
	}
	records, err := fleet.Open(ctx, url, cmp.Or(r.Blobs, s.Layout().Blobs()), s.Logger(ctx, t.Err))
	if err != nil || !own {
		return records, err
	}
	if err := records.Store.Migrate(ctx); err != nil {
		return fleet.Records{}, errors.Join(err, records.Close())
	}
	return records, nil
}
