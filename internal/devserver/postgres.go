//go:build !serverprocess

package devserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
)

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
