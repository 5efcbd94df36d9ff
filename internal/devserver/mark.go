package devserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
)

// databaseFile is the name of the database in the directory of a server.
const databaseFile = "temporal.db"

// uriPath writes a path for SQLite's file URIs, in which ?, # and % mean
// something.
func uriPath(path string) string {
	return (&url.URL{Path: path}).EscapedPath()
}

// The mark has a table of its own, which the server does not know.
const (
	createMark = `CREATE TABLE IF NOT EXISTS fulgurite_mark (one INTEGER PRIMARY KEY, mark INTEGER NOT NULL)`
	selectMark = `SELECT COALESCE(MAX(mark), 0) FROM fulgurite_mark`
	writeMark  = `INSERT INTO fulgurite_mark (one, mark) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET mark = excluded.mark`
)

// Mark returns the number that SetMark has stored in the directory's database, at first 0.
// It says from which time a database is that may have come from a backup.
func (s *Server) Mark(ctx context.Context) (mark int64, err error) {
	err = s.withDatabase(ctx, func(db *sql.DB) error { return db.QueryRowContext(ctx, selectMark).Scan(&mark) })
	return mark, err
}

// SetMark stores a number in the directory's database.
func (s *Server) SetMark(ctx context.Context, mark int64) error {
	return s.withDatabase(ctx, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, writeMark, mark)
		return err
	})
}

func (s *Server) withDatabase(ctx context.Context, work func(*sql.DB) error) (err error) {
	db, err := sql.Open("sqlite", "file:"+uriPath(filepath.Join(s.options.Dir, databaseFile))+"?"+url.Values{
		"mode": {"rw"}, "_pragma": {"busy_timeout(10000)"},
	}.Encode())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err = db.ExecContext(ctx, createMark); err == nil {
		err = work(db)
	}
	if err != nil {
		return fmt.Errorf("mark of Temporal's database: %w", err)
	}
	return nil
}
