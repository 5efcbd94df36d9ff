package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

const (
	// stagedSchema is the schema of a PostgreSQL database in which a store is made before it
	// gets its place.
	stagedSchema = "fulgurite_restoring"
	// stagedLock is the key of the advisory lock that who makes a store has.
	stagedLock = 0x66756c6775726974

	selectPlace = `SELECT COALESCE(current_schema(), ''), has_database_privilege(current_database(), 'CREATE'), COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false)`
	selectLabel = `SELECT COALESCE(obj_description(to_regnamespace('` + stagedSchema + `')::oid, 'pg_namespace'), '')`
	firstIn     = `SELECT COALESCE(MIN(c.relname), '') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')`
	tablesIn    = `SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename`
)

// Errors of a place for a store.
var (
	// ErrOccupied means that a database in which a store is to be made is not empty.
	ErrOccupied = errors.New("it is not empty")
	// ErrStaging means that another process makes a store in the same database.
	ErrStaging = errors.New("another process restores to it")
	// ErrRight means that the user of a database may not make a store there.
	ErrRight = errors.New("its user lacks a right")
)

// Staged is a store that is being made in an empty PostgreSQL database. It lies in a schema of
// its own, where no process of a fleet looks for it, until Commit gives it its place at once.
// What a killed process left there is removed by the next one.
type Staged struct {
	// URL is the address at which the store can be opened until Commit.
	URL string

	conn  *pgx.Conn
	place string // the schema that will have the tables
	label string
}

// CheckStage returns the error that Stage would return now, and changes nothing. label is that of
// an interrupted process, as Staged.Label returns it.
func CheckStage(ctx context.Context, address string) (label string, err error) {
	s, err := prepare(ctx, address)
	if err != nil {
		return "", err
	}
	return s.label, s.conn.Close(ctx)
}

// Stage begins to make a store at an address, with empty tables. The database has to be empty;
// other databases of the server do not matter.
func Stage(ctx context.Context, address string) (*Staged, error) {
	s, err := prepare(ctx, address)
	if err != nil {
		return nil, err
	}
	err = s.empty(ctx)
	if err == nil {
		err = s.makeTables(ctx)
	}
	if err != nil {
		return nil, errors.Join(withoutSecrets(err, address), s.Close())
	}
	return s, nil
}

// prepare connects to a database, locks it against others who make a store there, and checks
// that it can have one.
func prepare(ctx context.Context, address string) (_ *Staged, err error) {
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
	if err := s.check(ctx); err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// check locks the database, and returns an error if no store can be made there.
func (s *Staged) check(ctx context.Context) error {
	if _, err := s.conn.Exec(ctx, fmt.Sprintf(withoutLimits, false)+`; SET client_encoding = 'UTF8'`); err != nil {
		return fmt.Errorf("lift the limits of the connection: %w", err)
	}
	var locked bool
	if err := s.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(stagedLock)).Scan(&locked); err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	if !locked {
		return ErrStaging
	}
	var mayMake, mayMove bool
	if err := s.conn.QueryRow(ctx, selectPlace).Scan(&s.place, &mayMake, &mayMove); err != nil {
		return fmt.Errorf("find the schema of the store: %w", err)
	}
	switch {
	case s.place == "":
		return fmt.Errorf("%w: its search_path names no schema that exists", ErrUnusable)
	case !mayMake:
		return fmt.Errorf("%w: it may not make schemas in the database: GRANT CREATE ON DATABASE, or use its owner", ErrRight)
	case !mayMove:
		return fmt.Errorf("%w: it may not make tables in schema %s: GRANT CREATE ON SCHEMA, or use its owner", ErrRight, s.place)
	}
	if err := s.checkEmpty(ctx, s.conn); err != nil {
		return err
	}
	if err := s.conn.QueryRow(ctx, selectLabel).Scan(&s.label); err != nil {
		return fmt.Errorf("look for an interrupted restore: %w", err)
	}
	return nil
}

// empty replaces the schema by an empty one with the same label.
func (s *Staged) empty(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, s.conn, func(t pgx.Tx) error {
		if _, err := t.Exec(ctx, `DROP SCHEMA IF EXISTS `+stagedSchema+` CASCADE`); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `CREATE SCHEMA `+stagedSchema); err != nil {
			return err
		}
		return s.comment(ctx, t, s.label)
	})
	if err != nil {
		return fmt.Errorf("make schema %s: %w", stagedSchema, err)
	}
	return nil
}

// comment writes a label where the server keeps it as long as the schema is there.
func (s *Staged) comment(ctx context.Context, q interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, label string) error {
	_, err := q.Exec(ctx, `COMMENT ON SCHEMA `+stagedSchema+` IS '`+strings.ReplaceAll(label, "'", "''")+`'`)
	return err
}

// Label returns what SetLabel was last given for what is staged here, by an interrupted process
// perhaps. It is empty otherwise, and always after a Commit.
func (s *Staged) Label() string { return s.label }

// SetLabel gives what is staged a label, without apostrophes or backslashes, that outlives this
// process until a Commit.
func (s *Staged) SetLabel(ctx context.Context, label string) error {
	if err := s.comment(ctx, s.conn, label); err != nil {
		return fmt.Errorf("label schema %s: %w", stagedSchema, err)
	}
	s.label = label
	return nil
}

// Ping asks the server for nothing, so that nothing between takes the connection for unused.
func (s *Staged) Ping(ctx context.Context) error {
	if err := s.conn.Ping(ctx); err != nil {
		return fmt.Errorf("ask whether the database is still there: %w", err)
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
	s.label = ""
	return nil
}

// Close removes what is staged but its label, unless Commit has succeeded, and disconnects.
func (s *Staged) Close() error {
	ctx := context.Background()
	var err error
	if s.label != "" {
		err = s.empty(ctx)
	} else {
		_, err = s.conn.Exec(ctx, `DROP SCHEMA IF EXISTS `+stagedSchema+` CASCADE`)
	}
	if err != nil {
		err = fmt.Errorf("remove what is in schema %s, which the next restore does, too: %w", stagedSchema, err)
	}
	return errors.Join(err, s.conn.Close(ctx))
}
