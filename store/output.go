package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// outputLimit is how many bytes are kept of what an attempt printed on one output.
const outputLimit = 8 << 10

const selectOutput = `SELECT a.stdout, a.stderr, a.lines_before FROM attempts a`

// Output returns what an attempt printed, empty before its seal, or trace.ErrNotFound.
// Reading an attempt leaves it out, since those who read many have no use for it.
func (s *Store) Output(ctx context.Context, address trace.Address) (trace.Output, error) {
	out, err := database.One(ctx, s.db.Read(), func(row database.Scan) (o trace.Output, err error) {
		err = row(&o.Stdout, &o.Stderr, &o.LinesBefore)
		return o, err
	}, selectOutput+atAttempt, attemptKey(address)...)
	if err != nil {
		return trace.Output{}, fmt.Errorf("read output of attempt %s: %w", address, known(err))
	}
	return out, nil
}
