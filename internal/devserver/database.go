//go:build !serverprocess

package devserver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
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

const (
	// postgresName is the database of a URL that names none. What the server lists and
	// counts is in a second database, named with visibilitySuffix.
	postgresName     = "temporal"
	visibilitySuffix = "_visibility"
)

// postgresDatabases returns the two databases of the server at a URL, with the newest
// schema. It makes them if they are absent.
func postgresDatabases(ctx context.Context, serverURL string) (databases, error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return databases{}, errors.New("database: want a URL postgres://…")
	}
	name := strings.TrimPrefix(u.Path, "/")
	if name == "" {
		name = postgresName
	}
	var d databases
	if d.history, err = postgresDatabase(ctx, *u, name, histories()); err != nil {
		return d, fmt.Errorf("open database %s: %w", name, err)
	}
	name += visibilitySuffix
	if d.visibility, err = postgresDatabase(ctx, *u, name, listings()); err != nil {
		return d, fmt.Errorf("open database %s: %w", name, err)
	}
	return d, nil
}

// postgresDatabase prepares one database and returns how the server connects to it.
func postgresDatabase(ctx context.Context, u url.URL, name string, p purpose) (*config.SQL, error) {
	u.Path = "/" + name
	conn, err := pgx.Connect(ctx, u.String())
	if absent(err) {
		if err := createPostgres(ctx, u, name); err != nil {
			return nil, fmt.Errorf("create it: %w", err)
		}
		conn, err = pgx.Connect(ctx, u.String())
	}
	if err != nil {
		return nil, err
	}
	c := conn.Config()
	if err := errors.Join(createSchema(ctx, conn, name, p), conn.Close(ctx)); err != nil {
		return nil, err
	}
	sql := &config.SQL{
		PluginName: postgresql.PluginNamePGX, DatabaseName: name,
		User: url.PathEscape(c.User), Password: c.Password, ConnectAttributes: map[string]string{},
		MaxConns: 20, MaxIdleConns: 20, // for each of several pools; PostgreSQL allows 100 by default
	}
	for key, values := range u.Query() {
		sql.ConnectAttributes[key] = values[0]
	}
	if sql.ConnectAttributes["sslmode"] == "" && os.Getenv("PGSSLMODE") == "" {
		sql.ConnectAttributes["sslmode"] = "prefer" // PostgreSQL's own default, not Temporal's
	}
	if strings.HasPrefix(c.Host, "/") { // a socket
		sql.ConnectAttributes["host"], sql.ConnectAttributes["port"] = c.Host, strconv.Itoa(int(c.Port))
	} else {
		sql.ConnectAddr = net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	}
	return sql, nil
}

// PostgreSQL's codes for a missing database, and for one that exists.
const (
	codeAbsent  = "3D000"
	codePresent = "42P04"
)

func absent(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == codeAbsent
}

func createPostgres(ctx context.Context, u url.URL, name string) error {
	u.Path = "/postgres"
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == codePresent {
		err = nil // another start was faster
	}
	return errors.Join(err, conn.Close(ctx))
}
