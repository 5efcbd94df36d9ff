package store

import (
	"context"

	"github.com/fulgurite/fulgurite/store/database"
)

// LastDurability returns how durably s last wrote, from now on.
func LastDurability(s *Store) func() database.Durability {
	r := &recorder{DB: s.db}
	s.db = r
	return func() database.Durability { return r.last }
}

// recorder is a database that one goroutine writes to.
type recorder struct {
	database.DB
	last database.Durability
}

func (r *recorder) Write(ctx context.Context, d database.Durability, op func(database.Tx) error) error {
	r.last = d
	return r.DB.Write(ctx, d, op)
}
