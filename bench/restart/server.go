package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the store's own driver
)

// server is the directory and the process that are measured.
type server struct {
	tool, dir string
	process   *exec.Cmd
}

// start starts `fulgurite dev` and returns when it says that it is up.
func (s *server) start(ctx context.Context) error {
	s.process = exec.Command(s.tool, "dev", "--dir", s.dir, "--port", "0", "--ui-port", "0", "--gateway-port", "0")
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.process.Stderr = os.Stderr
	out, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	up := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "is up.") {
				up <- nil
				_, _ = io.Copy(io.Discard, out) // to its end
				return
			}
		}
		up <- errors.New("fulgurite dev ended before it was up")
	}()
	select {
	case err := <-up:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends the process and whatever it started that is still of its group.
func (s *server) kill() {
	if s.process == nil {
		return
	}
	_ = syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = s.process.Wait()                                      // "signal: killed"
	s.process = nil
}

// train starts the run.
func (s *server) train(ctx context.Context, spec string) error {
	c := exec.CommandContext(ctx, s.tool, "train", "--dir", s.dir, "--detach", spec)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("train: %w: %s", err, out)
	}
	return nil
}

// count is how many rows the run has.
type count struct {
	calls, attempts, batches, versions int
	at                                 time.Time
}

// difference says what grew.
func (c count) difference(from count) string {
	switch {
	case c.calls > from.calls:
		return "call"
	case c.attempts > from.attempts:
		return "attempt"
	case c.batches > from.batches:
		return "batch"
	}
	return "version"
}

func anything(now, before count) bool {
	return now.calls > before.calls || now.attempts > before.attempts || now.batches > before.batches || now.versions > before.versions
}

func step(now, before count) bool { return now.versions > before.versions }

const counting = `SELECT (SELECT count(*) FROM calls WHERE run = ?1),
	(SELECT count(*) FROM attempts WHERE run = ?1 AND outcome <> ''),
	(SELECT count(*) FROM batches WHERE run = ?1),
	(SELECT count(*) FROM versions WHERE run = ?1)`

// count reads the store, which lies beside whoever writes it.
func (s *server) count(ctx context.Context) (c count, err error) {
	db, err := s.open()
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return read(ctx, db)
}

func (s *server) open() (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+filepath.Join(s.dir, "fulgurite.db")+"?_pragma=busy_timeout(10000)&_pragma=query_only(1)")
}

func read(ctx context.Context, db *sql.DB) (c count, err error) {
	err = db.QueryRowContext(ctx, counting, runName).Scan(&c.calls, &c.attempts, &c.batches, &c.versions)
	c.at = time.Now()
	return c, err
}

// patience is how long progress may take before the benchmark gives up.
const patience = 3 * time.Minute

// progress waits until the rows are what is wanted.
func (s *server) progress(ctx context.Context, before count, wanted func(now, before count) bool) (count, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := s.open()
	if err != nil {
		return count{}, err
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := read(ctx, db)
		if err != nil {
			return now, fmt.Errorf("read the store: %w", err)
		}
		if wanted(now, before) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, fmt.Errorf("no progress within %s: %w", patience, ctx.Err())
		case <-tick.C:
		}
	}
}
