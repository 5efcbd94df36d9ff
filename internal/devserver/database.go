//go:build !serverprocess

package devserver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	schema "go.temporal.io/server/schema/sqlite"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/store/database"
)

// databases holds the database of the histories, and the database of what the server
// lists and counts. With SQLite they are the same.
type databases struct {
	history, visibility *config.SQL
}

// memoryDatabase returns a separate database in memory for each call.
func memoryDatabase() *config.SQL {
	return &config.SQL{
		PluginName:   sqlite.PluginName,
		DatabaseName: "devserver-" + rand.Text(),
		// The server's plug-in makes the schema of a database in memory.
		ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
	}
}

// fileDatabase returns the database in dir, which it makes if it is absent. The caller
// holds the lock of dir.
func fileDatabase(ctx context.Context, dir string) (*config.SQL, error) {
	path := filepath.Join(dir, databaseFile)
	if err := database.CheckFile(ctx, path); err != nil {
		return nil, err
	}
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = createDatabase(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	return &config.SQL{
		PluginName:   sqlite.PluginName,
		DatabaseName: uriPath(path),
		ConnectAttributes: map[string]string{
			"mode": "rw",
			// One flush per commit, into a log: measured several times faster than
			// the default rollback journal and no less durable.
			"journal_mode": "wal",
			"synchronous":  "full",
			// A person's sqlite3 shell may hold the database for a moment.
			"busy_timeout": "10000",
		},
	}, nil
}

// emptyLog copies SQLite's log into its file and empties it, so that a directory in which
// nothing runs has everything in one file. The server leaves its connections open, so SQLite
// does not do it by itself. If it fails, nothing is lost: the next start reads the log.
func emptyLog(path string, log *zap.Logger) {
	db, err := sql.Open("sqlite", "file:"+uriPath(path)+"?mode=rw&_pragma=busy_timeout(1000)")
	if err == nil {
		_, err = db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		log.Info("SQLite's log stays", zap.String("database", path), zap.Error(err))
	}
}

// createDatabase makes the schema in another file in the same directory and then renames
// it to path. So a process that dies in between leaves no incomplete schema.
func createDatabase(path string) error {
	draft := path + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Nothing of the draft is worth keeping, so it needs no journal.
	db, err := sql.Open("sqlite", "file:"+uriPath(draft)+"?_pragma=journal_mode=off&_pragma=synchronous=off")
	if err != nil {
		return err
	}
	if err := errors.Join(schema.SetupSchemaOnDB(schemaDB{db: db}), db.Close()); err != nil {
		return err
	}
	if err := sync(draft); err != nil {
		return err
	}
	if err := os.Rename(draft, path); err != nil {
		return err
	}
	return sync(filepath.Dir(path))
}

// schemaDB implements the part of the server's administrative interface that is needed to
// make the schema. The server's own implementation never closes its connection, but the
// file has to be renamed.
type schemaDB struct {
	sqlplugin.AdminDB
	db *sql.DB
}

// Exec runs one statement of the schema.
func (s schemaDB) Exec(statement string, arguments ...any) error {
	_, err := s.db.Exec(statement, arguments...)
	return err
}

func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
