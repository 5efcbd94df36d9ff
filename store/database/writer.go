package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/internal/wait"
)

// commitBatch is the most writes of one transaction. It is large enough that all waiting
// writes share a commit, and small enough that the last of them waits only milliseconds.
const commitBatch = 256

var errClosed = errors.New("store is closed")

// writer writes to an SQLite file in one goroutine. It commits all waiting writes
// together. A write that fails does not affect the others, and each caller gets the
// result of its own write.
type writer struct {
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	full  bool // whether the connection syncs the log at each commit

	checkpoints *checkpointer

	queue   chan *pending
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed by run
}

// pending is a write that waits for its commit.
type pending struct {
	ctx  context.Context
	full bool
	op   func(Tx) error // may run more than once
	err  error
	done chan error
}

func newWriter(db *sql.DB, conn *sql.Conn, checkpoints *checkpointer) *writer {
	w := &writer{
		db: db, conn: conn, stmts: map[string]*sql.Stmt{}, checkpoints: checkpoints,
		queue: make(chan *pending), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go w.run()
	return w
}

func (w *writer) Write(ctx context.Context, d Durability, op func(Tx) error) error {
	p := &pending{ctx: ctx, full: d == SurvivesPowerLoss, op: op, done: make(chan error, 1)}
	select {
	case w.queue <- p:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.stop:
		return errClosed
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close must be called only once.
func (w *writer) Close() error {
	close(w.stop)
	<-w.stopped
	return errors.Join(w.checkpoints.Close(), w.conn.Close(), w.db.Close())
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		select {
		case p := <-w.queue:
			w.commit(w.waiting(p))
		case <-w.stop:
			for _, s := range w.stmts {
				_ = s.Close()
			}
			return
		}
	}
}

// waiting returns p and what else waits at this moment.
func (w *writer) waiting(p *pending) []*pending {
	batch := []*pending{p}
	for len(batch) < commitBatch {
		select {
		case p := <-w.queue:
			batch = append(batch, p)
		default:
			return batch
		}
	}
	return batch
}

// commit runs a batch and answers each of its callers.
func (w *writer) commit(batch []*pending) {
	err := w.transact(batch)
	for _, p := range batch {
		if p.err == nil {
			p.err = err
		}
		p.done <- p.err
	}
	if err := w.checkpoints.committed(context.Background(), w.conn); err != nil {
		w.checkpoints.failed(err)
	}
}

// transact commits the batch, and returns an error if the batch as a whole was not
// committed. Few writes fail, and savepoints cost as much as a small write. So they are
// used only after a write of the batch failed.
func (w *writer) transact(batch []*pending) error {
	full := false
	for _, p := range batch {
		full = full || p.full
	}
	if err := w.sync(full); err != nil {
		return fmt.Errorf("set synchronous: %w", err)
	}
	err := w.transaction(batch, func(p *pending) error {
		p.run(w)
		return p.err
	})
	if len(batch) > 1 && slices.ContainsFunc(batch, func(p *pending) bool { return p.err != nil }) {
		return w.transaction(batch, w.try)
	}
	return err
}

// transaction commits a batch if try returns no error for any of it.
func (w *writer) transaction(batch []*pending, try func(*pending) error) error {
	if err := begin(context.Background(), w); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	for _, p := range batch {
		if err := try(p); err != nil {
			_ = w.do("ROLLBACK") // SQLite may have rolled back by itself
			return err
		}
	}
	if err := w.do("COMMIT"); err != nil {
		_ = w.do("ROLLBACK")
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// beginInterval is how often who wants to write asks for the lock that another connection has.
// Asking takes microseconds.
const beginInterval = time.Millisecond

// begin begins a transaction that writes, on a connection with a busy_timeout of 0. It waits
// for other connections that write, as SQLite itself would, whose pauses between two questions
// grow to 100 ms: beside a process that writes in short transactions with short pauses, a
// writer would miss one pause after the other.
func begin(ctx context.Context, conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
},
) error {
	for began := time.Now(); ; {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		if !isBusy(err) || time.Since(began) > busyTimeout*time.Millisecond {
			return err
		}
		if !wait.For(ctx, beginInterval) {
			return context.Cause(ctx)
		}
	}
}

// try runs p in a savepoint. It returns an error only if the whole transaction failed,
// for example on a full disk.
func (w *writer) try(p *pending) error {
	if err := w.do("SAVEPOINT write"); err != nil {
		return fmt.Errorf("begin write: %w", err)
	}
	if p.run(w); p.err != nil {
		if err := w.do("ROLLBACK TO write"); err != nil {
			return fmt.Errorf("undo write: %w (after %w)", err, p.err)
		}
	}
	if err := w.do("RELEASE write"); err != nil {
		return fmt.Errorf("end write: %w", err)
	}
	return nil
}

// run does the write, unless its caller has given up. It does not pass on the caller's
// context, since this would interrupt the connection that all writes share.
func (p *pending) run(w *writer) {
	if p.err = context.Cause(p.ctx); p.err == nil {
		p.err = p.op(Tx{Ctx: context.Background(), Querier: w})
	}
}

// sync chooses between a commit that reaches only the operating system and one that
// reaches the disk. The latter also writes all earlier commits to the disk.
func (w *writer) sync(full bool) error {
	if w.full == full {
		return nil
	}
	level := "PRAGMA synchronous = NORMAL"
	if full {
		level = "PRAGMA synchronous = FULL"
	}
	// Not through a prepared statement: some pragmas act when they are prepared.
	if _, err := w.conn.ExecContext(context.Background(), level); err != nil {
		return err
	}
	w.full = full
	return nil
}

func (w *writer) do(query string) error {
	_, err := w.ExecContext(context.Background(), query)
	return err
}

// ExecContext runs a statement on the writer's connection. Each statement is prepared
// once.
func (w *writer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := w.prepared(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args...)
}

// QueryContext runs a query on the writer's connection. Each query is prepared once.
func (w *writer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := w.prepared(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (w *writer) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := w.stmts[query]; ok {
		return s, nil
	}
	s, err := w.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	w.stmts[query] = s
	return s, nil
}
