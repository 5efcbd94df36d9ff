package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

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

// Clock goes on within a transaction, unlike now().
func (p *postgres) Clock() string {
	return `(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000000)::BIGINT`
}

func (p *postgres) Close() error {
	err := p.db.Close()
	p.pool.Close()
	return err
}
