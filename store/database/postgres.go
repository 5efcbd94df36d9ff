package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"go.uber.org/zap"
)

// collisions is how often a transaction that collided with another is run.
const collisions = 8

// postgres is a store in a PostgreSQL database. Each write is a separate transaction (the
// server combines their log flushes) at isolation level read committed, with row locks
// where a decision and its effect must be atomic.
type postgres struct {
	pool *pgxpool.Pool
	db   *sql.DB
	log  *zap.Logger
}

func openPostgres(ctx context.Context, url string, log *zap.Logger) (*postgres, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("reach PostgreSQL: %w", err)
	}
	return &postgres{pool, stdlib.OpenDBFromPool(pool), log}, nil
}

func (p *postgres) Read() Querier { return p.db }

// ReadOften returns the same, because the driver prepares all queries.
func (p *postgres) ReadOften() Querier { return p.db }

// Write ignores Durability: PostgreSQL flushes its log at each commit, unless an
// administrator turned synchronous_commit off.
func (p *postgres) Write(ctx context.Context, _ Durability, op func(Tx) error) error {
	var err error
	for range collisions {
		if err = p.once(ctx, op); !collided(err) {
			return err
		}
		p.log.Debug("store write collided", zap.Error(err))
	}
	return err
}

func (p *postgres) once(ctx context.Context, op func(Tx) error) error {
	t, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := op(Tx{Ctx: ctx, Querier: t, ForUpdate: " FOR UPDATE", ForShare: " FOR SHARE"}); err != nil {
		_ = t.Rollback() // the first error counts, and a broken connection rolls back too
		return err
	}
	if err := t.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// collided reports whether PostgreSQL undid a transaction because of another one, by
// deadlock or serialization failure, and it should be run again.
func collided(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40P01" || e.Code == "40001")
}

func (p *postgres) Schema(ctx context.Context) (number int, err error) {
	var there bool
	if err := p.db.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL`).Scan(&there); err != nil {
		return 0, fmt.Errorf("look for the schema: %w", err)
	}
	if !there {
		return 0, nil
	}
	if err := p.db.QueryRowContext(ctx, applied).Scan(&number); err != nil {
		return 0, fmt.Errorf("read the schema's number: %w", err)
	}
	return number, nil
}

func (p *postgres) Migrate(ctx context.Context) (int, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err != nil {
		return 0, fmt.Errorf("make lock: %w", err)
	}
	return applyMigrations(ctx, p.db, goose.DialectPostgres, goose.WithSessionLocker(locker))
}

// Settle implements DB. The server does so by itself.
func (p *postgres) Settle(context.Context) {}

// Scrub implements DB. VACUUM frees the space of removed rows for new ones, and only VACUUM
// FULL writes tables without them. It returns ErrSnapshot instead of waiting for a backup.
func (p *postgres) Scrub(ctx context.Context, whole bool) error {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it goes back to the pool
	statement := "VACUUM"
	if whole {
		statement = "VACUUM (FULL)"
		alone, err := One(ctx, conn, Scalar[bool], aloneRewrite, int64(RewriteLock))
		if err != nil {
			return fmt.Errorf("lock the tables against backups: %w", err)
		}
		if !alone {
			return ErrSnapshot
		}
		// A connection that is broken has lost its lock.
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), endRewrite, int64(RewriteLock)) }()
	}
	tables, err := List(ctx, conn, Scalar[string], `SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()`)
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, table := range tables {
		if _, err := conn.ExecContext(ctx, statement+" "+table); err != nil {
			return fmt.Errorf("%s %s: %w", statement, table, err)
		}
	}
	return nil
}

// Clock goes on within a transaction, unlike now().
func (p *postgres) Clock() string {
	return `(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000000)::BIGINT`
}

func (p *postgres) Close() error {
	err := p.db.Close()
	p.pool.Close()
	return err
}

// IsPostgres reports whether an address is one of PostgreSQL.
func IsPostgres(address string) bool {
	scheme, _, _ := strings.Cut(address, "://")
	return scheme == "postgres" || scheme == "postgresql"
}

var (
	// scheme begins an address that is not a path.
	scheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)
	// keyword begins an address in libpq's other form, host=… password=….
	keyword = regexp.MustCompile(`^\s*(host|hostaddr|port|dbname|user|password|passfile|service|sslmode|options|application_name)\s*=`)
)

// addresses says what an address of a store may be.
const addresses = "give postgres://USER@HOST/NAME with the password in PGPASSWORD, sqlite:///absolute/path, or the path of an SQLite file"

// FilePath returns the path of the SQLite file at an address. It returns "" and no error
// for PostgreSQL. Errors are ErrUnusable and show no part of the address that could be a
// password.
func FilePath(address string) (string, error) {
	if bare := strings.Trim(address, " \t\r\n\"'"); bare != address && bare != "" { // it may be that of a server, with a password
		return "", fmt.Errorf("%w: its address has white space or quotes around it: leave them out", ErrUnusable)
	}
	if IsPostgres(address) {
		if _, err := url.Parse(address); err != nil { // its text may quote a password
			return "", fmt.Errorf("%w: its address is no URL: write special characters of user and password as %%2F for / or %%40 for @, or put the password into PGPASSWORD", ErrUnusable)
		}
		return "", nil
	}
	path, isURL := strings.CutPrefix(address, "sqlite://")
	switch {
	case strings.TrimSpace(path) == "":
		return "", fmt.Errorf("%w: its address is empty: %s", ErrUnusable, addresses)
	case keyword.MatchString(address):
		return "", fmt.Errorf("%w: its address has the form host=…: %s", ErrUnusable, addresses)
	case isURL && !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("%w: %q has no absolute path: write sqlite:///absolute/path", ErrUnusable, address)
	case strings.HasPrefix(address, ":"):
		return "", fmt.Errorf("%w: %q is no file: %s", ErrUnusable, address, addresses)
	case !isURL && scheme.MatchString(address):
		name, _, _ := strings.Cut(address, ":")
		return "", fmt.Errorf("%w: %s: is not a scheme of its addresses: %s (a path that begins so as ./%s:…)", ErrUnusable, name, addresses, name)
	}
	return path, nil
}

// Redacted returns an address for logs and errors: without any password.
func Redacted(address string) string {
	if path, err := FilePath(address); err == nil && path != "" {
		return address
	}
	u, err := url.Parse(address)
	if err != nil || !IsPostgres(address) {
		return "(an address that can't be read)"
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, "xxxxx")
		}
	}
	if u.RawQuery != "" {
		u.RawQuery = query.Encode()
	}
	return u.Redacted()
}

// withoutSecrets returns err, whose text may quote an address, without its passwords.
func withoutSecrets(err error, address string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, secret := range secrets(address) {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	return redactedError{err, text}
}

// redactedError is an error with another text.
type redactedError struct {
	error
	text string
}

func (e redactedError) Error() string { return e.text }

func (e redactedError) Unwrap() error { return e.error }

// secrets returns the passwords in an address, as they are written and as they are meant.
func secrets(address string) (out []string) {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	if user := u.User; user != nil {
		if password, ok := user.Password(); ok && password != "" {
			_, written, _ := strings.Cut(user.String(), ":")
			out = append(out, written, password)
		}
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if strings.Contains(strings.ToLower(name), "pass") && value != "" {
			out = append(out, value)
			if meant, err := url.QueryUnescape(value); err == nil {
				out = append(out, meant)
			}
		}
	}
	return out
}
