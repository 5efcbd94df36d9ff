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
	some := s.changeInPostgres
	if !s.postgres {
		some = s.changeInSQLite
	}
	for rows := firstRows; ; {
		changed, took, ended, err := some(ctx, change, table, where, args, rows)
		if err != nil || ended {
			return err
		}
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

// changeInPostgres changes some rows in a transaction, at most limit. ended says that there are
// no more. Others need none of the rows that are locked.
func (s *Store) changeInPostgres(ctx context.Context, change, table, where string, args []any, limit int) (changed int, took time.Duration, ended bool, err error) {
	query := change + ` WHERE ctid = ANY (ARRAY(SELECT ctid FROM ` + table + ` WHERE ` + where + ` LIMIT ` + fmt.Sprintf("$%d", len(args)+1) + `))`
	var began time.Time
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error { // the tombstone is repeated until it ends
		began = time.Now()
		n, err := t.Exec(query, append(slices.Clone(args), limit)...)
		changed = int(n)
		return err
	})
	return changed, time.Since(began), changed < limit, err
}

// changeInSQLite does the same. Others wait for the transaction, so rows are looked for before
// it: that may take long where no index has what the condition asks for. In the transaction,
// each row is found by its number, and its condition is asked again.
func (s *Store) changeInSQLite(ctx context.Context, change, table, where string, args []any, limit int) (changed int, took time.Duration, ended bool, err error) {
	last := fmt.Sprintf("$%d", len(args)+1)
	find := func(limit int) ([]int64, error) {
		return database.List(ctx, s.db.Read(), database.Scalar[int64], `SELECT rowid FROM `+table+` WHERE `+where+` LIMIT `+last, append(slices.Clone(args), limit)...)
	}
	rows, err := find(limit)
	if err != nil || len(rows) == 0 {
		return 0, 0, true, err
	}
	query := change + ` WHERE rowid = ` + last + ` AND (` + where + `)`
	values := append(slices.Clone(args), int64(0))
	var began time.Time
	tried := 0
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error { // the tombstone is repeated until it ends
		changed, tried, began = 0, 0, time.Now()
		// Only SQLite leaves the bytes of removed rows in its file otherwise.
		if _, err := t.Exec("PRAGMA secure_delete = ON"); err != nil {
			return err
		}
		for _, row := range rows {
			if tried > 0 && time.Since(began) >= removalTarget/2 { // the commit takes about as long as the statements
				break
			}
			values[len(args)] = row
			n, err := t.Exec(query, values...)
			if err != nil {
				return err
			}
			changed, tried = changed+int(n), tried+1
		}
		return nil
	})
	took = time.Since(began)
	if err == nil && tried == len(rows) && tried < limit { // that was all, unless others have added to it
		rows, err = find(1)
		ended = len(rows) == 0
	}
	return changed, took, ended, err
}

// nextRows returns the limit of a removal's next transaction, after one with a limit of rows
// that changed some and took some time. One that changed fewer than its limit ended by its time.
func nextRows(rows, changed int, took time.Duration) int {
	switch {
	case took > removalTooLong:
		return max(1, min(rows/2, int(int64(changed)*int64(removalTarget)/int64(took))))
	case changed < rows:
		return min(rows, max(firstRows, 2*changed))
	case took < removalTarget/2:
		return min(maxRows, 2*rows)
	}
	return rows
}
