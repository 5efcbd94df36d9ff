package processes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotInstalled is wrapped where there is no PostgreSQL; SQLite does without.
var ErrNotInstalled = errors.New("PostgreSQL is not installed")

// startPostgres starts a PostgreSQL server and returns its URL, without a database. The
// server does not sync to disk. That is enough for processes that are killed.
func (f *Fleet) startPostgres(ctx context.Context) (string, error) {
	credential, err := unprivileged()
	if err != nil {
		return "", err
	}
	server, err := installed("postgres")
	if err != nil {
		return "", err
	}
	data := f.path("postgres", "data")
	if err := f.initialize(ctx, data, credential); err != nil {
		return "", err
	}
	ports, err := freePorts(1)
	if err != nil {
		return "", err
	}
	url := "postgres://postgres@127.0.0.1:" + ports[0]
	p := &process{
		program: server, credential: credential,
		arguments: []string{"-D", data, "-p", ports[0], "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=300"},
		up:        func(ctx context.Context, _ *process) error { return reachable(ctx, url+"/postgres?connect_timeout=2") },
	}
	f.add(Postgres, p)
	p.directory = f.path("postgres")
	p.drain = syscall.SIGINT // with SIGTERM it would wait for clients to disconnect
	if err := f.startAndAwait(ctx, Postgres); err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, url+"/postgres")
	if err != nil {
		return "", fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE fulgurite")
	var present *pgconn.PgError
	if errors.As(err, &present) && present.Code == "42P04" {
		err = nil // an earlier fleet left the directory
	}
	return url, errors.Join(err, conn.Close(ctx))
}

// initialize makes the server's files, unless they are there.
func (f *Fleet) initialize(ctx context.Context, data string, as *syscall.Credential) error {
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	initdb, err := installed("initdb")
	if err != nil {
		return err
	}
	home := filepath.Dir(data)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	if as != nil {
		if err := os.Chown(home, int(as.Uid), int(as.Gid)); err != nil {
			return fmt.Errorf("give away directory: %w", err)
		}
		if err := makeReachable(home); err != nil {
			return err
		}
	}
	command := exec.CommandContext(ctx, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	command.SysProcAttr, command.Dir = &syscall.SysProcAttr{Credential: as}, home
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// makeReachable lets other users traverse the path to a directory.
func makeReachable(path string) error {
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			if err := os.Chmod(path, info.Mode().Perm()|0o011); err != nil {
				return fmt.Errorf("open the way to %s: %w", path, err)
			}
		}
	}
	return nil
}

// installed finds one of PostgreSQL's programs, which Debian keeps off the path.
func installed(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%w: no %s", ErrNotInstalled, name)
	}
	return found[len(found)-1], nil
}

// unprivileged returns the user to run the server as if this process runs as root,
// because the server refuses to run as root. Otherwise it returns nil.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("find a user to run PostgreSQL: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read user id %q: %w", u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read group id %q: %w", u.Gid, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
