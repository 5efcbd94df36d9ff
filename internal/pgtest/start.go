package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

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
