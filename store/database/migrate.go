package database

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applyMigrations runs the pending migrations and returns how many there were.
func applyMigrations(ctx context.Context, db *sql.DB, dialect goose.Dialect, options ...goose.ProviderOption) (int, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, fmt.Errorf("open migrations: %w", err)
	}
	options = append(options, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	provider, err := goose.NewProvider(dialect, db, files, options...)
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return 0, fmt.Errorf("apply migrations: %w", err)
	}
	return len(results), nil
}
