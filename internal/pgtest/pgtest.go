package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fulgurite/fulgurite/store"
)

// errAbsent means that PostgreSQL is not installed.
var errAbsent = errors.New("PostgreSQL is not installed, and TEST_DATABASE_URL is not set")

// serverOfBinary is the one variable that the package keeps: a server takes
// seconds to start, so the tests of a binary share it.
var serverOfBinary = sync.OnceValues(find)

// server is a server on which databases are created. template, if not empty, is a
// database with the schema.
type server struct {
	url      string // of a database to connect to for making others
	template string
	// lifeline is the pipe at whose end the server stops; it is held here so that
	// the garbage collector does not close it.
	lifeline io.Closer
}

// URL returns the URL of a fresh database with the schema. It is dropped when
// the test ends.
func URL(t testing.TB) string {
	t.Helper()
	s, err := serverOfBinary()
	if errors.Is(err, errAbsent) && os.Getenv("CI") == "" {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	name := "fulgurite_test_" + strings.ToLower(rand.Text())
	if err := s.create(t.Context(), name); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := s.do(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return s.database(name)
}

func find() (*server, error) {
	if given := os.Getenv("TEST_DATABASE_URL"); given != "" {
		// There is no template, because it would stay on a server that is not ours.
		return &server{url: given}, nil
	}
	s, err := start()
	if err != nil {
		return nil, err
	}
	const template = "fulgurite_template"
	if err := s.create(context.Background(), template); err != nil {
		return nil, fmt.Errorf("create template: %w", err)
	}
	s.template = template
	return s, nil
}

// create creates a database with the schema.
func (s *server) create(ctx context.Context, name string) error {
	if s.template != "" {
		return s.do(ctx, "CREATE DATABASE "+name+" TEMPLATE "+s.template)
	}
	if err := s.do(ctx, "CREATE DATABASE "+name); err != nil {
		return err
	}
	db, err := store.Open(ctx, s.database(name), nil)
	if err != nil {
		return err
	}
	return errors.Join(db.Migrate(ctx), db.Close())
}

// do runs a statement that may not be in a transaction.
func (s *server) do(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// database returns the URL of another database on the server.
func (s *server) database(name string) string {
	u, err := url.Parse(s.url)
	if err != nil {
		return s.url // does not happen, since this URL was already used to connect
	}
	u.Path = "/" + name
	return u.String()
}
