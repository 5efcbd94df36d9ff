package database

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrUnusable is in the chain of an error that lasts until a person changes something: a
// bad address, a schema of another release, a damaged file. Waiting does not help.
var ErrUnusable = errors.New("this store can't be used")

// schemaNumber returns the number of the schema that this program needs.
func schemaNumber() (int, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) != 1 {
		return 0, fmt.Errorf("one file with a schema is wanted, found %d: %w", len(files), err)
	}
	number, err := goose.NumericComponent(files[0])
	return int(number), err
}

// checkSchema refuses a schema that is not this program's. 0 is that of a database without
// tables, which Migrate makes.
func checkSchema(has int) error {
	needs, err := schemaNumber()
	release := "an older"
	switch {
	case err != nil:
		return err
	case has == 0 || has == needs:
		return nil
	case has > needs:
		release = "a newer"
	}
	return fmt.Errorf("%w: it has schema %d, of %s release, and this program needs schema %d: use the program of that release for its runs, "+
		"or another store for new ones (--dir, or in a fleet --store and --blobs)", ErrUnusable, has, release, needs)
}

// foreign is the error for a database with tables but without a schema's number.
func foreign() error {
	return fmt.Errorf("%w: it has tables of another program: give a store its own database", ErrUnusable)
}

// applied reads the number of the schema from the table in which goose keeps it.
const applied = `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied`

// applyMigrations makes the tables if there are none. It returns how many files it
// executed.
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
