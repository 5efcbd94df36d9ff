package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"
	driver "modernc.org/sqlite"
)

// SQLite appends pages to a log and from time to time copies them into the file
// (https://sqlite.org/wal.html#ckpt). By default the commit that fills the log does this.
// It then syncs twice while all other writes wait.
const (
	// copyPages is how many pages the writer appends between two copies.
	copyPages = 1024
	// restart is the length of the log, in multiples of copyPages, from which it is
	// started again from its beginning. With a longer log, a page that changes often is
	// copied less often, but reads become slower.
	restart = 4
)

// checkpointer copies the log of an SQLite database into its file. It uses its own
// connection and goroutine, so that readers and the writer can continue. SQLite starts
// the log again from its beginning only when all of it has been copied, which never
// happens to a log that grows while it is copied. So for a long log, the writer itself
// copies the rest between two commits.
type checkpointer struct {
	db     *sql.DB
	logger *zap.Logger
	every  int // copyPages

	appended       int           // pages that the writer had appended when it last asked for a copy
	writerMustCopy atomic.Bool   // whether the writer is to copy the rest
	asked          chan struct{} // requests a copy from run
	stop           context.CancelFunc
	stopped        chan struct{} // closed by run
}

func newCheckpointer(path string, logger *zap.Logger) (*checkpointer, error) {
	db, err := sql.Open("sqlite", sqliteDSN(path))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
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
		_, err := copyLog(ctx, conn)
		return err
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
		length, err := copyLog(ctx, c.db)
		if err != nil && !errors.Is(err, context.Canceled) {
			c.failed(err)
		}
		c.writerMustCopy.Store(length >= restart*c.every)
	}
}

// failed logs that a copy failed. Nothing is lost: the log has all pages, and grows until
// a later copy succeeds.
func (c *checkpointer) failed(err error) {
	c.logger.Warn("SQLite's log is not copied into its file: check the room on the disk", zap.Error(err))
}

// copyLog copies all pages that no reader still needs, unless another connection is
// copying. It does not wait. It returns the length of the log in pages.
func copyLog(ctx context.Context, conn interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (length int, err error) {
	var busy, copied int
	if err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &length, &copied); err != nil {
		return 0, fmt.Errorf("copy log: %w", err)
	}
	return length, nil
}

// pagesAppended returns how many pages conn has written since it was opened.
func pagesAppended(conn *sql.Conn) (pages int, err error) {
	err = conn.Raw(func(c any) error {
		pages, _, err = c.(driver.DBStatus).Status(driver.DBStatusCacheWrite, false)
		return err
	})
	return pages, err
}
