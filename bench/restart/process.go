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

// process is the `fulgurite dev` that is measured, and its directory.
type process struct {
	tool, dir string
	cmd       *exec.Cmd
}

// start starts `fulgurite dev` and returns when it says that it is up.
func (p *process) start(ctx context.Context) error {
	p.cmd = exec.Command(p.tool, "dev", "--dir", p.dir, "--port", "0", "--ui-port", "0", "--gateway-port", "0")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
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
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = p.cmd.Wait()                                      // "signal: killed"
	p.cmd = nil
}

// train starts the run.
func (p *process) train(ctx context.Context, spec string) error {
	c := exec.CommandContext(ctx, p.tool, "train", "--dir", p.dir, "--detach", spec)
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

// difference says which number grew.
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

const countRows = `SELECT (SELECT count(*) FROM calls WHERE run = ?1),
	(SELECT count(*) FROM attempts WHERE run = ?1 AND outcome <> ''),
	(SELECT count(*) FROM batches WHERE run = ?1),
	(SELECT count(*) FROM versions WHERE run = ?1)`

// count counts the rows in the store while the measured process writes it.
func (p *process) count(ctx context.Context) (c count, err error) {
	db, err := p.open()
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return read(ctx, db)
}

func (p *process) open() (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+filepath.Join(p.dir, "fulgurite.db")+"?_pragma=busy_timeout(10000)&_pragma=query_only(1)")
}

func read(ctx context.Context, db *sql.DB) (c count, err error) {
	err = db.QueryRowContext(ctx, countRows, runName).Scan(&c.calls, &c.attempts, &c.batches, &c.versions)
	c.at = time.Now()
	return c, err
}

// progressTimeout is how long progress may take before the benchmark gives up.
const progressTimeout = 3 * time.Minute

// progress waits until the number of rows is as wanted.
func (p *process) progress(ctx context.Context, before count, wanted func(now, before count) bool) (count, error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	db, err := p.open()
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
			return now, fmt.Errorf("no progress within %s: %w", progressTimeout, ctx.Err())
		case <-tick.C:
		}
	}
}
