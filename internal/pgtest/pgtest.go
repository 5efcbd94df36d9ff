// Package pgtest gives each test a separate PostgreSQL database with the store's schema.
//
// The server is the one that TEST_DATABASE_URL names; its user must be allowed to create
// databases. Otherwise the package starts one from the installed binaries, in a temporary
// directory, reachable only by a socket, once for each test binary. A small shell process
// watches the test binary: when that ends, in whatever way, it stops the server and
// removes the server's directory.
//
// If there is neither, tests are skipped, unless the environment variable CI is set:
// there, a check that was silently skipped would look like one that passed.
//
// The server that the package starts does not sync to disk. That is enough for tests that
// kill processes, but not for tests of power loss.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// startTimeout is how long a server may take to answer: it took 2.5 s on two busy
// cores.
const startTimeout = time.Minute

// supervise runs the server until standard input ends, which is when the test
// binary does, however it ends. $1 is the server, $2 its directory.
const supervise = `"$1" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=200 >"$2/log" 2>&1 &
cat >/dev/null
kill -INT $!
wait $!
rm -rf "$2"`

// start creates and starts a server.
func start() (*server, error) {
	initdb, err := program("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := program("postgres")
	if err != nil {
		return nil, err
	}
	// The socket's path must be short, so this is no test's own directory.
	directory, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	as, name, err := unprivileged(directory)
	if err != nil {
		return nil, err
	}
	create := exec.Command(initdb, "-D", filepath.Join(directory, "data"), "-U", name, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	create.SysProcAttr, create.Dir = as, directory
	if out, err := create.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w: %s", err, out), os.RemoveAll(directory))
	}
	supervisor := exec.Command("sh", "-c", supervise, "sh", postgres, directory)
	supervisor.SysProcAttr, supervisor.Dir = as, directory
	lifeline, err := supervisor.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("supervise: %w", err)
	}
	if err := supervisor.Start(); err != nil {
		return nil, fmt.Errorf("supervise: %w", err)
	}
	query := url.Values{"host": {directory}, "user": {name}}
	s := &server{url: "postgres:///postgres?" + query.Encode(), lifeline: lifeline}
	if err := s.await(filepath.Join(directory, "log")); err != nil {
		return nil, err
	}
	return s, nil
}

// program finds one of PostgreSQL's programs, which Debian keeps out of the path.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", errAbsent
	}
	return found[len(found)-1], nil
}

// unprivileged returns the user that runs the server, which refuses to run as root, and
// gives that user the directory. The processes get their own process group, so that an
// interrupt from the keyboard does not stop the server while tests are still ending.
func unprivileged(directory string) (*syscall.SysProcAttr, string, error) {
	as := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != 0 {
		return as, "postgres", nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, "", fmt.Errorf("find a user to run the server: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, "", fmt.Errorf("read user id %q: %w", u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, "", fmt.Errorf("read group id %q: %w", u.Gid, err)
	}
	if err := os.Chown(directory, int(uid), int(gid)); err != nil {
		return nil, "", fmt.Errorf("give away directory: %w", err)
	}
	as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return as, "postgres", nil
}

// await returns when the server answers.
func (s *server) await(log string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text, _ := os.ReadFile(log) // the log is only a hint, so its error is ignored
			return fmt.Errorf("no answer within %v: %w: %s", startTimeout, err, text)
		}
	}
}
