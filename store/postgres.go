package store

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

// postgres is a store in a PostgreSQL database. Each write is a transaction of
// its own (the server shares its log flushes among them) at read committed,
// with row locks where a decision and its effect must not be parted.
type postgres struct {
	pool *pgxpool.Pool
	db   *sql.DB
	log  *zap.Logger
}

func openPostgres(ctx context.Context, url string, log *zap.Logger) (*postgres, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("reach PostgreSQL: %w", err)
	}
	return &postgres{pool, stdlib.OpenDBFromPool(pool), log}, nil
}

func (p *postgres) read() querier { return p.db }

// write needs no word from durability: PostgreSQL flushes its log at each
// commit, unless an administrator turned synchronous_commit off.
func (p *postgres) write(ctx context.Context, _ durability, op func(tx) error) error {
	var err error
	for range collisions {
		if err = p.once(ctx, op); !collided(err) {
			return err
		}
		p.log.Debug("store write collided", zap.Error(err))
	}
	return err
}

func (p *postgres) once(ctx context.Context, op func(tx) error) error {
	t, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := op(tx{ctx: ctx, querier: t, forUpdate: " FOR UPDATE"}); err != nil {
		_ = t.Rollback() // the cause is what counts, and a broken connection rolls back too
		return err
	}
	if err := t.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// collided reports whether PostgreSQL undid a transaction because of another
// one, and asks for it to be run again: deadlock or serialization failure.
func collided(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40P01" || e.Code == "40001")
}

func (p *postgres) migrate(ctx context.Context) (int, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err != nil {
		return 0, fmt.Errorf("make lock: %w", err)
	}
	return applyMigrations(ctx, p.db, goose.DialectPostgres, goose.WithSessionLocker(locker))
}

// clock goes on within a transaction, unlike now().
func (p *postgres) clock() string {
	return `(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000000)::BIGINT`
}

func (p *postgres) close() error {
	err := p.db.Close()
	p.pool.Close()
	return err
}
