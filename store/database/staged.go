package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

const (
	// stagedSchema is the schema of a PostgreSQL database in which a store is made before it
	// gets its place.
	stagedSchema = "fulgurite_restoring"
	// stagedLock is the key of the advisory lock that who makes a store has.
	stagedLock = 0x66756c6775726974

	selectPlace = `SELECT COALESCE(current_schema(), '')`
	firstIn     = `SELECT COALESCE(MIN(c.relname), '') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')`
	tablesIn    = `SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename`
)

// Errors of a place for a store.
var (
	// ErrOccupied means that a database in which a store is to be made is not empty.
	ErrOccupied = errors.New("it is not empty")
	// ErrStaging means that another process makes a store in the same database.
	ErrStaging = errors.New("another process restores to it")
)

// Staged is a store that is being made in an empty PostgreSQL database. It lies in a schema of
// its own, where no process of a fleet looks for it, until Commit gives it its place at once.
// What a killed process left there is removed by the next one.
type Staged struct {
	// URL is the address at which the store can be opened until Commit.
	URL string

	conn  *pgx.Conn
	place string // the schema that will have the tables
}

// Stage begins to make a store at an address, with empty tables. The database has to be empty;
// other databases of the server do not matter.
func Stage(ctx context.Context, address string) (_ *Staged, err error) {
	defer func() { err = withoutSecrets(err, address) }()
	if path, err := FilePath(address); err != nil || path != "" {
		return nil, errors.Join(err, fmt.Errorf("%w: %s is no address of PostgreSQL", ErrUnusable, Redacted(address)))
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: its address is no URL", ErrUnusable)
	}
	query := u.Query()
	query.Set("search_path", stagedSchema)
	u.RawQuery = query.Encode()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("reach PostgreSQL: %w", err)
	}
	s := &Staged{URL: u.String(), conn: conn}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	if err := s.makeTables(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// begin locks the database against others who do the same, and makes an empty schema.
func (s *Staged) begin(ctx context.Context) error {
	var locked bool
	if err := s.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(stagedLock)).Scan(&locked); err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	if !locked {
		return ErrStaging
	}
	if err := s.conn.QueryRow(ctx, selectPlace).Scan(&s.place); err != nil {
		return fmt.Errorf("find the schema of the store: %w", err)
	}
	if s.place == "" {
		return fmt.Errorf("%w: its search_path names no schema that exists", ErrUnusable)
	}
	if err := s.checkEmpty(ctx, s.conn); err != nil {
		return err
	}
	for _, statement := range []string{
		`SET statement_timeout = 0`, `SET client_encoding = 'UTF8'`,
		`DROP SCHEMA IF EXISTS ` + stagedSchema + ` CASCADE`, `CREATE SCHEMA ` + stagedSchema,
	} {
		if _, err := s.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("make schema %s, for which the user needs the right to create in the database: %w", stagedSchema, err)
		}
	}
	return nil
}

func (s *Staged) makeTables(ctx context.Context) error {
	db, err := openPostgres(ctx, s.URL, zap.NewNop())
	if err != nil {
		return err
	}
	_, err = db.Migrate(ctx)
	return errors.Join(err, db.Close())
}

// checkEmpty returns ErrOccupied if there is anything where the store will be.
func (s *Staged) checkEmpty(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var name string
	if err := q.QueryRow(ctx, firstIn, s.place).Scan(&name); err != nil {
		return fmt.Errorf("look for tables: %w", err)
	}
	if name != "" {
		return fmt.Errorf("%w: its schema %s has %q: make a new database (CREATE DATABASE) and give its address", ErrOccupied, s.place, name)
	}
	return nil
}

// CheckTables returns an error unless these are the tables that the store has.
func (s *Staged) CheckTables(ctx context.Context, tables []CopiedTable) error {
	rows, err := s.conn.Query(ctx, tablesIn, stagedSchema)
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	has, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	has = slices.DeleteFunc(has, func(name string) bool { return name == gooseTable })
	given := make([]string, len(tables))
	for i, t := range tables {
		given[i] = t.Name
	}
	slices.Sort(given)
	if !slices.Equal(has, given) {
		return fmt.Errorf("the tables are %v, and a store has %v", given, has)
	}
	return nil
}

// Load adds the rows of a copy that Snapshot.Copy wrote, all or none, and returns how many the
// table has afterwards. It needs no more memory for large tables.
func (s *Staged) Load(ctx context.Context, t CopiedTable, from io.Reader) (rows int64, err error) {
	table := quoted(stagedSchema, t.Name)
	if _, err := s.conn.PgConn().CopyFrom(ctx, from, `COPY `+table+` `+t.list()+` FROM STDIN (FORMAT binary)`); err != nil {
		return 0, fmt.Errorf("load table %s: %w", t.Name, err)
	}
	if err := s.conn.QueryRow(ctx, `SELECT COUNT(*) FROM `+table).Scan(&rows); err != nil {
		return 0, fmt.Errorf("count rows of table %s: %w", t.Name, err)
	}
	// Without statistics the first queries would read whole tables.
	if _, err := s.conn.Exec(ctx, `ANALYZE `+table); err != nil {
		return 0, fmt.Errorf("analyze table %s: %w", t.Name, err)
	}
	return rows, nil
}

// Commit gives the store its place, in one transaction. Nobody may have it open any more.
func (s *Staged) Commit(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, s.conn, func(t pgx.Tx) error {
		if err := s.checkEmpty(ctx, t); err != nil {
			return err
		}
		rows, err := t.Query(ctx, tablesIn, stagedSchema)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, table := range tables {
			if _, err := t.Exec(ctx, `ALTER TABLE `+quoted(stagedSchema, table)+` SET SCHEMA `+quoted(s.place)); err != nil {
				return fmt.Errorf("move table %s: %w", table, err)
			}
		}
		_, err = t.Exec(ctx, `DROP SCHEMA `+stagedSchema)
		return err
	})
	if err != nil {
		return fmt.Errorf("put the store in its place: %w", err)
	}
	return nil
}

// Close removes what is staged, unless Commit has succeeded, and disconnects.
func (s *Staged) Close() error {
	ctx := context.Background()
	_, err := s.conn.Exec(ctx, `DROP SCHEMA IF EXISTS `+stagedSchema+` CASCADE`)
	if err != nil {
		err = fmt.Errorf("remove schema %s, which the next restore does, too: %w", stagedSchema, err)
	}
	return errors.Join(err, s.conn.Close(ctx))
}
