package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	driver "modernc.org/sqlite"

	"github.com/fulgurite/fulgurite/internal/wait"
)

// SQLite appends pages to a log and from time to time copies them into the file
// (https://sqlite.org/wal.html#ckpt). By default the commit that fills the log does this.
// It then syncs twice while all other writes wait.
// A copy syncs the file only if nothing was appended meanwhile
// (walCheckpoint in https://sqlite.org/src/file/src/wal.c). Beside a writer, the file
// therefore collects pages that are not on the disk, and the copy that reaches the end of the
// log syncs all of them. That copy must not be one for which writers wait.
const (
	// copyPages is how many pages the writer appends between two copies.
	copyPages = 1024
	// restart is the length of the log, in multiples of copyPages, from which it is
	// started again from its beginning. With a longer log, a page that changes often is
	// copied less often, but reads become slower.
	restart = 4
	// maxRest is how many pages may be copied while writers wait: a megabyte, which takes
	// milliseconds.
	maxRest = 256
	// maxCopies bounds how often the log is copied to leave such a rest. Writers that append
	// faster than it is copied leave more.
	maxCopies = 8
	// maxHeld is how long writers wait for a copy that syncs.
	maxHeld = 20 * time.Millisecond
	// longestHold bounds how long writers wait where the disk takes longer than maxHeld each time.
	longestHold = time.Second
	// emptyWait is how long one attempt to empty the log waits for others: first for writers,
	// and then, while they wait, for readers.
	emptyWait = 20 * time.Millisecond
	// emptyPause is the pause between two attempts.
	emptyPause = 10 * time.Millisecond
	// copyingWait is how long a copy waits for that of another connection.
	copyingWait = 10 * time.Millisecond
	// maxCut is how many bytes of the log's file are cut off while writers wait. File systems
	// take about a millisecond for each megabyte.
	maxCut = 8 << 20
)

// checkpointer copies the log of an SQLite database into its file. It uses its own
// connection and goroutine, so that readers and the writer can continue. SQLite starts
// the log again from its beginning only when all of it has been copied, which never
// happens to a log that grows while it is copied. So for a long log, the writer itself
// copies the small rest between two commits.
type checkpointer struct {
	db     *sql.DB
	logger *zap.Logger
	every  int // copyPages

	appended       int           // pages that the writer had appended when it last asked for a copy
	writerMustCopy atomic.Bool   // whether the writer is to copy the rest
	asked          chan struct{} // requests a copy from run
	copying        sync.Mutex    // held by copy, which uses all connections of db
	stop           context.CancelFunc
	stopped        chan struct{} // closed by run
}

func newCheckpointer(path string, logger *zap.Logger) (*checkpointer, error) {
	db, err := sql.Open("sqlite", sqliteDSN(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2) // copyAndSync needs both
	db.SetMaxIdleConns(2)
	ctx, stop := context.WithCancel(context.Background())
	c := &checkpointer{
		db: db, logger: logger.With(zap.String("store", path)), every: copyPages,
		asked: make(chan struct{}, 1), stop: stop, stopped: make(chan struct{}),
	}
	go c.run(ctx)
	return c, nil
}

// Close ends the copying. Pages that are not copied stay in the log.
func (c *checkpointer) Close() error {
	c.stop()
	<-c.stopped
	return c.db.Close()
}

// committed is called by the writer with its connection, after a commit.
func (c *checkpointer) committed(ctx context.Context, conn *sql.Conn) error {
	if c.writerMustCopy.Load() { // run copies nothing meanwhile
		defer c.writerMustCopy.Store(false)
		if _, _, err := copyLog(ctx, conn); !errors.Is(err, errCopying) {
			return err
		}
		return nil
	}
	appended, err := pagesAppended(conn)
	if err != nil || appended-c.appended < c.every {
		return err
	}
	c.appended = appended
	select {
	case c.asked <- struct{}{}:
	default:
	}
	return nil
}

func (c *checkpointer) run(ctx context.Context) {
	defer close(c.stopped)
	for {
		select {
		case <-c.asked:
		case <-ctx.Done():
			return
		}
		if c.writerMustCopy.Load() {
			continue
		}
		c.copy(ctx)
	}
}

// copy copies the log, and logs an error. Only one call runs at a time.
func (c *checkpointer) copy(ctx context.Context) {
	c.copying.Lock()
	defer c.copying.Unlock()
	must, err := c.copyMost(ctx)
	if err != nil && !errors.Is(err, errCopying) && ctx.Err() == nil {
		c.failed(err)
	}
	c.writerMustCopy.Store(must)
}

// copyMost copies the log. If the log is long enough to begin anew, it also copies what was
// appended meanwhile, until the file is synced and the rest is small enough to be copied while
// writers wait, and reports that. It does so, too, if writers append faster than it copies; not
// if a reader still needs the rest, because the writer would copy all of it once that reader
// has ended.
func (c *checkpointer) copyMost(ctx context.Context) (writerMustCopy bool, err error) {
	before, synced := -1, false
	for range maxCopies {
		length, copied, err := copyLog(ctx, c.db)
		switch rest := length - copied; {
		case errors.Is(err, errCopying) && wait.For(ctx, copyingWait):
			continue
		case err != nil || length < restart*c.every:
			return false, err
		case rest <= maxRest && synced:
			return true, nil
		case rest <= maxRest:
			if synced, err = copyAndSync(ctx, c.db, maxHeld, nil); err != nil && !errors.Is(err, errCopying) {
				return false, err
			}
		case copied == before:
			return false, nil
		}
		before = copied
	}
	return true, nil
}

// failed logs that a copy failed. Nothing is lost: the log has all pages, and grows until
// a later copy succeeds.
func (c *checkpointer) failed(err error) {
	c.logger.Warn("SQLite's log is not copied into its file: check the room on the disk", zap.Error(err))
}

// errCopying means that another connection copies the log at the moment.
var errCopying = errors.New("another connection copies the log")

// copyLog copies all pages that no reader still needs, unless another connection is
// copying: then it returns errCopying. It does not wait. It returns the length of the log in
// pages, and how many of them have been copied.
func copyLog(ctx context.Context, conn interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (length, copied int, err error) {
	var busy int
	if err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &length, &copied); err != nil {
		return 0, 0, fmt.Errorf("copy log: %w", err)
	}
	if busy != 0 {
		return 0, 0, errCopying
	}
	return length, copied, nil
}

// copyAndSync copies the log while nobody appends to it, so that SQLite syncs the file. Writers
// wait until it is done, at most for hold, and go on while a longer sync runs. synced says
// whether it was done in that time; if not, it was begun or a reader needs the rest, and
// another call may find less to do. If it was, and then is not nil, it is called with the length
// of the log in pages, before anybody appends to it.
func copyAndSync(ctx context.Context, db *sql.DB, hold time.Duration, then func(length int) error) (synced bool, err error) {
	conn, err := connWaiting(ctx, db, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := begin(ctx, conn); isBusy(err) {
		return false, errCopying
	} else if err != nil {
		return false, fmt.Errorf("keep others from writing: %w", err)
	}
	released := make(chan error, 1)
	release := func() {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		released <- err
	}
	timer := time.AfterFunc(hold, release)
	length, copied, err := copyLog(ctx, db)
	if timer.Stop() {
		if synced = err == nil && copied == length; synced && then != nil {
			err = then(length)
		}
		release()
	}
	return synced, errors.Join(err, <-released)
}

// emptyLog copies the log of the file at path into it and cuts the log to nothing. Nearly all
// of it is copied and synced while others write. Writers wait for the rest, which was appended
// since, and while the log is cut, piece by piece. If readers that still need it don't end in
// time, writers go on, and it tries again. db has room for two connections.
func emptyLog(ctx context.Context, db *sql.DB, path string) error {
	var page int64
	if err := db.QueryRowContext(ctx, "PRAGMA page_size").Scan(&page); err != nil {
		return err
	}
	size, err := logSize(path)
	if err != nil {
		return err
	}
	hold := maxHeld
	for progress := time.Now(); time.Since(progress) < busyTimeout*time.Millisecond; {
		length, copied, err := copyLog(ctx, db)
		synced := false
		if err == nil && length-copied <= maxRest {
			synced, err = copyAndSync(ctx, db, hold, func(length int) error { return cutLog(path, length, page) })
			if err == nil && !synced { // a slow disk needs longer, or a reader has to end
				hold = min(2*hold, longestHold)
			}
		}
		if err != nil && !errors.Is(err, errCopying) {
			return err
		}
		before := size
		if size, err = logSize(path); err != nil {
			return err
		}
		switch {
		case size < before:
			progress = time.Now()
		case synced && size <= maxCut:
			if done, err := truncateLog(ctx, db); done || err != nil {
				return err
			}
		case synced: // pages at its end count as used until somebody writes, which nobody may do now
			if err := beginLogAnew(ctx, db); err != nil {
				return err
			}
		}
		if !wait.For(ctx, emptyPause) { // others get the lock meanwhile
			return context.Cause(ctx)
		}
	}
	return ErrBusy
}

// connWaiting returns a connection on which a statement waits that long for others.
func connWaiting(ctx context.Context, db *sql.DB, d time.Duration) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds())); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// beginLogAnew makes a write that changes nothing: SQLite writes it to the beginning of a log
// of which everything was copied and which no reader needs.
func beginLogAnew(ctx context.Context, db *sql.DB) (err error) {
	conn, err := connWaiting(ctx, db, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var version int
	if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if err := begin(ctx, conn); err != nil {
		return err
	}
	for _, statement := range []string{fmt.Sprintf("PRAGMA user_version = %d", version), "COMMIT"} {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), statement); err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // the first error counts
			return err
		}
	}
	return nil
}

// logSize returns the size in bytes of the log of the file at path.
func logSize(path string) (int64, error) {
	stat, err := os.Stat(path + "-wal")
	if err != nil {
		return 0, err
	}
	return stat.Size(), nil
}

// cutLog cuts a piece off the end of the log's file, as SQLite does itself with
// journal_size_limit. It leaves the pages that were appended since the log last began anew,
// which are all that anybody reads, so nobody may append meanwhile. Nobody locks the log's
// file: https://sqlite.org/walformat.html.
func cutLog(path string, length int, page int64) error {
	if length == 0 { // its header may still be that of the pages before, which a recovery would read
		return nil
	}
	const header, frameHeader = 32, 24
	size, err := logSize(path)
	if err != nil {
		return err
	}
	if used := header + int64(length)*(frameHeader+page); size > max(maxCut, used) {
		return os.Truncate(path+"-wal", max(maxCut, used, size-maxCut))
	}
	return nil
}

// truncateLog copies the rest of the log, and cuts it to nothing unless others use it.
func truncateLog(ctx context.Context, db *sql.DB) (done bool, err error) {
	conn, err := connWaiting(ctx, db, emptyWait)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var busy, length, copied int
	if err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &length, &copied); err != nil {
		return false, err
	}
	return busy == 0, nil
}

// pagesAppended returns how many pages conn has written since it was opened.
func pagesAppended(conn *sql.Conn) (pages int, err error) {
	err = conn.Raw(func(c any) error {
		pages, _, err = c.(driver.DBStatus).Status(driver.DBStatusCacheWrite, false)
		return err
	})
	return pages, err
}
