package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/store/database"
)

// A removal of rows is divided into transactions, because other writers wait for each of
// them. How long the rows of a transaction take depends on their bytes, on the indexes and on
// what the disk has to read, so the next transaction follows from what the last one took.
const (
	firstRows      = 16                    // of the first transaction
	maxRows        = 4096                  // of any transaction
	rowsAtOnce     = 16                    // of one statement of SQLite, after which the time is checked
	removalTarget  = 20 * time.Millisecond // of a transaction with its commit
	removalTooLong = 30 * time.Millisecond // from here on the next transaction is smaller
	minPause       = 5 * time.Millisecond  // between two transactions
)

// removeRows removes the rows of a table for which a condition holds.
func (s *Store) removeRows(ctx context.Context, table, where string, args ...any) error {
	return s.changeRows(ctx, `DELETE FROM `+table, table, where, args...)
}

// changeRows applies a statement, which has no condition of its own, to the rows of a table
// for which a condition holds, in transactions of about 20 ms. Between two of them it waits as
// long as the last one took. The condition must not hold for a row any more once it is changed.
func (s *Store) changeRows(ctx context.Context, change, table, where string, args ...any) error {
	limit := fmt.Sprintf("$%d", len(args)+1)
	bySQLite := change + ` WHERE rowid IN (SELECT rowid FROM ` + table + ` WHERE ` + where + ` LIMIT ` + limit + `)`
	byPostgres := change + ` WHERE ctid = ANY (ARRAY(SELECT ctid FROM ` + table + ` WHERE ` + where + ` LIMIT ` + limit + `))`
	for rows := firstRows; ; {
		var changed int
		var ended bool
		var began time.Time
		err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error { // the tombstone is repeated until it ends
			changed, began = 0, time.Now()
			if t.ForUpdate != "" { // others need none of the rows that are locked
				n, err := t.Exec(byPostgres, append(slices.Clone(args), rows)...)
				changed, ended = int(n), n < int64(rows)
				return err
			}
			// Only SQLite leaves the bytes of removed rows in its file otherwise.
			if _, err := t.Exec("PRAGMA secure_delete = ON"); err != nil {
				return err
			}
			// The commit takes about as long as the statements.
			for ended = false; !ended && changed < rows && (changed == 0 || time.Since(began) < removalTarget/2); {
				some := min(rowsAtOnce, rows-changed)
				n, err := t.Exec(bySQLite, append(slices.Clone(args), some)...)
				if err != nil {
					return err
				}
				changed, ended = changed+int(n), n < int64(some)
			}
			return nil
		})
		if err != nil || ended {
			return err
		}
		took := time.Since(began)
		rows = nextRows(rows, changed, took)
		s.db.Settle(ctx)
		pause := time.NewTimer(max(minPause, took)) // so that others that wait for SQLite's lock get it
		select {
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		case <-pause.C:
		}
	}
}

// nextRows returns the limit of a removal's next transaction, after one with a limit of rows
// that changed some and took some time.
func nextRows(rows, changed int, took time.Duration) int {
	switch {
	case took > removalTooLong:
		return max(1, min(rows/2, int(int64(changed)*int64(removalTarget)/int64(took))))
	case took < removalTarget/2 && changed == rows:
		return min(maxRows, 2*rows)
	}
	return rows
}
