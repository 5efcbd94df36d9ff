//go:build !serverprocess

package devserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/server/schema"
	newest "go.temporal.io/server/schema/postgresql/v12"
)

// versionTables are where the server looks for the version of its schema. They are as the
// server's own schema tool makes them, so that the tool can continue from here.
const versionTables = `
CREATE TABLE IF NOT EXISTS schema_version (
	version_partition INT NOT NULL, db_name VARCHAR(255) NOT NULL, creation_time TIMESTAMP,
	curr_version VARCHAR(64), min_compatible_version VARCHAR(64), PRIMARY KEY (version_partition, db_name));
CREATE TABLE IF NOT EXISTS schema_update_history (
	version_partition INT NOT NULL, year INT NOT NULL, month INT NOT NULL, update_time TIMESTAMP NOT NULL,
	description VARCHAR(255), manifest_md5 VARCHAR(64), new_version VARCHAR(64), old_version VARCHAR(64),
	PRIMARY KEY (version_partition, year, month, update_time));`

const (
	// schemaLock takes a lock whose number no other program uses in these databases.
	schemaLock   = `SELECT pg_advisory_xact_lock(7239173)`
	readVersion  = `SELECT curr_version FROM schema_version WHERE version_partition = 0 AND db_name = $1`
	writeVersion = `INSERT INTO schema_version (version_partition, db_name, creation_time, curr_version, min_compatible_version) VALUES (0, $1, $2, $3, $3)`
)

// purpose describes one of the two databases: the folder of its schema, and the schema's
// version.
type purpose struct{ folder, version string }

func histories() purpose { return purpose{"postgresql/v12/temporal", newest.Version} }

func listings() purpose { return purpose{"postgresql/v12/visibility", newest.VisibilityVersion} }

// createSchema makes the schema in a database that has none, in one transaction: a
// process that dies in between leaves nothing of it. An older schema is left to
// Temporal's own tool, since it can't be updated in one transaction.
func createSchema(ctx context.Context, conn *pgx.Conn, database string, p purpose) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, schemaLock); err != nil {
			return err
		}
		if err := execute(ctx, tx, versionTables); err != nil {
			return fmt.Errorf("make version tables: %w", err)
		}
		var at string
		err := tx.QueryRow(ctx, readVersion, database).Scan(&at)
		switch {
		case err == nil && at != p.version:
			return fmt.Errorf("it has version %s of the schema, this server needs %s: update it with temporal-sql-tool", at, p.version)
		case err == nil:
			return nil
		case !errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("read schema version: %w", err)
		}
		text, err := fs.ReadFile(schema.Assets(), path.Join(p.folder, "schema.sql"))
		if err != nil {
			return fmt.Errorf("read the server's schema: %w", err)
		}
		if err := execute(ctx, tx, string(text)); err != nil {
			return fmt.Errorf("make schema: %w", err)
		}
		_, err = tx.Exec(ctx, writeVersion, database, time.Now().UTC(), p.version)
		return err
	})
}

// execute runs several statements.
func execute(ctx context.Context, tx pgx.Tx, statements string) error {
	return tx.Conn().PgConn().Exec(ctx, statements).Close()
}
