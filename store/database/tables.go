package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// gooseTable is the table in which goose keeps the number of the schema.
const gooseTable = "goose_db_version"

// RewriteLock is the key of the advisory lock of a database that each snapshot shares and that
// who rewrites the tables has alone. Without it, VACUUM FULL would wait for the snapshot, and
// everybody who needs the table would wait for VACUUM FULL.
const RewriteLock = 0x66756c6775726977

const (
	// withoutLimits lifts the limits that a server may have for others, for a transaction or a
	// session. A server knows not all of them.
	withoutLimits = `SELECT set_config(name, '0', %t) FROM pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')`
	beginSnapshot = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL client_encoding = 'UTF8'`
	shareRewrite  = `SELECT pg_try_advisory_xact_lock_shared(%d)`
	aloneRewrite  = `SELECT pg_try_advisory_lock($1)`
	endRewrite    = `SELECT pg_advisory_unlock($1)`
	selectTables  = `SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> '` + gooseTable + `' ORDER BY tablename`
	selectColumns = `SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relname = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`
)

// Errors of a snapshot and of a rewrite, of which only one is possible at a time.
var (
	// ErrRewritten means that a store's tables are being rewritten.
	ErrRewritten = errors.New("its tables are being rewritten (forget --rewrite): try again when that has ended")
	// ErrSnapshot means that the tables can't be rewritten now.
	ErrSnapshot = errors.New("a backup runs, or another rewrite, which has to end first")
)

// CopiedTable says what a copy of a table has. The keys of its JSON are part of the format of
// backups.
type CopiedTable struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"` // in the order of the copy
	Rows    int64    `json:"rows"`
}

// Snapshot is a PostgreSQL database as it was at one moment. It blocks no writer and sees
// nothing of what others write; Scrub refuses to rewrite tables meanwhile. As long as it is open,
// the server keeps the rows that others remove.
type Snapshot struct{ conn *sql.Conn }

// TakeSnapshot begins to read a PostgreSQL database as it is now. It returns ErrRewritten if its
// tables are being rewritten.
func TakeSnapshot(ctx context.Context, db DB) (*Snapshot, error) {
	p, ok := db.(*postgres)
	if !ok {
		return nil, errors.New("take snapshot: the database is no PostgreSQL")
	}
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	s := &Snapshot{conn}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take snapshot: %w", err), s.Close())
	}
	return s, nil
}

// begin begins the transaction. The moment is that of its first query.
func (s *Snapshot) begin(ctx context.Context) error {
	var shared bool
	err := s.raw(func(c *pgconn.PgConn) error {
		results, err := c.Exec(ctx, beginSnapshot+`; `+fmt.Sprintf(withoutLimits, true)+`; `+fmt.Sprintf(shareRewrite, int64(RewriteLock))).ReadAll()
		if err == nil {
			shared = string(results[len(results)-1].Rows[0][0]) == "t"
		}
		return err
	})
	if err == nil && !shared {
		err = ErrRewritten
	}
	return err
}

// Ping asks the server for nothing, so that nothing between takes the connection for unused.
func (s *Snapshot) Ping(ctx context.Context) error {
	err := s.raw(func(c *pgconn.PgConn) error { return c.Exec(ctx, `SELECT 1`).Close() })
	if err != nil {
		return fmt.Errorf("ask whether the snapshot is still there: %w", err)
	}
	return nil
}

// Read returns the connection that sees the database as it was.
func (s *Snapshot) Read() Querier { return s.conn }

// Tables returns the tables of the database, without their rows, by name. The table with the
// number of the schema is not among them.
func (s *Snapshot) Tables(ctx context.Context) (out []CopiedTable, err error) {
	names, err := List(ctx, s.conn, Scalar[string], selectTables)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	for _, name := range names {
		columns, err := List(ctx, s.conn, Scalar[string], selectColumns, name)
		if err != nil {
			return nil, fmt.Errorf("list columns of table %s: %w", name, err)
		}
		out = append(out, CopiedTable{Name: name, Columns: columns})
	}
	return out, nil
}

// Copy writes the rows of a table in PostgreSQL's binary format of COPY, which keeps all
// values exactly, and returns how many rows there are. It needs no more memory for large
// tables.
func (s *Snapshot) Copy(ctx context.Context, t CopiedTable, to io.Writer) (rows int64, err error) {
	err = s.raw(func(c *pgconn.PgConn) error {
		done, err := c.CopyTo(ctx, to, `COPY `+quoted(t.Name)+` `+t.list()+` TO STDOUT (FORMAT binary)`)
		rows = done.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("copy table %s: %w", t.Name, err)
	}
	return rows, nil
}

// Close ends the reading.
func (s *Snapshot) Close() error {
	// A connection that is broken has ended its transaction.
	_ = s.raw(func(c *pgconn.PgConn) error { return c.Exec(context.Background(), `ROLLBACK`).Close() })
	return s.conn.Close()
}

// raw calls f with the connection of the driver.
func (s *Snapshot) raw(f func(*pgconn.PgConn) error) error {
	return s.conn.Raw(func(c any) error {
		conn, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("%T is no connection to PostgreSQL", c)
		}
		return f(conn.Conn().PgConn())
	})
}

// list returns the columns for a statement.
func (t CopiedTable) list() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = quoted(c)
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// quoted returns a name for a statement.
func quoted(names ...string) string { return pgx.Identifier(names).Sanitize() }
