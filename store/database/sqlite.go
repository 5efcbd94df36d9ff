package database

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// busyTimeout is how long, in milliseconds, a statement waits for another
// process that writes. Transactions last milliseconds; a checkpoint of a large
// log on a slow disk takes seconds.
const busyTimeout = 15000

// readers bounds the connections that read at once.
const readers = 8

// sqlite is a store in one file. Next to it SQLite keeps its log (-wal) and an index of
// the log (-shm). All writes of this process go through one writer. Readers see the last
// commit and never wait.
type sqlite struct {
	path  string
	reads *sql.DB
	often *prepared // reads, by prepared statements
	*writer
}

func openSQLite(ctx context.Context, path string, log *zap.Logger) (DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // beside which SQLite has its log
	}
	if stat, err := os.Stat(path); err == nil && !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is no file", ErrUnusable)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := unix.Access(path, unix.W_OK); errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return openForReading(ctx, path, err) // SQLite itself would notice at the first write
	}
	writes, err := sql.Open("sqlite", sqliteDSN(path, "wal_autocheckpoint(0)"))
	if err != nil {
		return nil, err
	}
	conn, err := firstConn(ctx, writes)
	if err == nil {
		_, err = conn.ExecContext(ctx, "PRAGMA busy_timeout = 0") // begin waits
	}
	if err != nil {
		err = errors.Join(err, writes.Close())
		if mayNotWrite(err) {
			return openForReading(ctx, path, err)
		}
		return nil, damaged(path, err)
	}
	checkpoints, err := newCheckpointer(path, log)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), writes.Close())
	}
	w := newWriter(writes, conn, checkpoints)
	reads, err := sql.Open("sqlite", sqliteDSN(path, "query_only(1)"))
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	reads.SetMaxOpenConns(readers)
	reads.SetMaxIdleConns(readers)
	return &sqlite{path, reads, &prepared{DB: reads, stmts: map[string]*sql.Stmt{}}, w}, nil
}

// openForReading opens a file that this process may not write, for example one on a disk
// that is mounted for reading. denied says why it may not.
func openForReading(ctx context.Context, path string, denied error) (DB, error) {
	options := url.Values{"mode": {"ro"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout), "query_only(1)"}}
	log, err := os.Stat(path + "-wal")
	_, indexed := os.Stat(path + "-shm")
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && log.Size() == 0:
		// All is in the file, and only who can write would make a log. Without this option
		// SQLite would make one itself.
		options.Set("immutable", "1")
	case err != nil:
		return nil, err
	case indexed != nil: // SQLite would have to make the index
		return nil, fmt.Errorf("%w: the file can't be written here and its log %s-wal has no index: copy both to where they can be written (%w)", ErrUnusable, path, denied)
	}
	reads, err := sql.Open("sqlite", fileURL(path, options))
	if err != nil {
		return nil, err
	}
	reads.SetMaxOpenConns(readers)
	reads.SetMaxIdleConns(readers)
	if err := reads.PingContext(ctx); err != nil {
		return nil, errors.Join(damaged(path, err), reads.Close())
	}
	return &readOnly{reads: reads}, nil
}

// readOnly is a store in a file that this process may not write.
type readOnly struct{ reads *sql.DB }

func (r *readOnly) Read() Querier { return r.reads }

func (r *readOnly) ReadOften() Querier { return r.reads }

func (r *readOnly) Schema(ctx context.Context) (int, error) { return schemaOfFile(ctx, r.reads) }

func (r *readOnly) Write(context.Context, Durability, func(Tx) error) error { return ErrReadOnly }

// Migrate changes nothing if there are tables, which Open has checked.
func (r *readOnly) Migrate(ctx context.Context) (int, error) {
	has, err := r.Schema(ctx)
	if err == nil && has == 0 {
		err = ErrReadOnly
	}
	return 0, err
}

func (r *readOnly) Clock() string { return sqliteClock }

func (r *readOnly) Close() error { return r.reads.Close() }

// ErrReadOnly is the error of a write to a store in a file that this process may not write.
var ErrReadOnly = errors.New("the store's file can't be written here: commands that only read work, others need it where it can be written")

// mayNotWrite reports whether SQLite failed because files may not be written, or made.
func mayNotWrite(err error) bool {
	var failed *driver.Error
	if !errors.As(err, &failed) {
		return false
	}
	code := failed.Code() & primaryCode
	return code == lib.SQLITE_READONLY || code == lib.SQLITE_CANTOPEN || code == lib.SQLITE_PERM
}

// damaged adds to an error of SQLite what to do, if it says that the file is damaged.
func damaged(path string, err error) error {
	var failed *driver.Error
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Code() & primaryCode {
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return fmt.Errorf("%w: %s is damaged, or was copied while it was written: restore it from a backup, as docs/backup.md describes (%w)", ErrUnusable, path, err)
	}
	return err
}

// checkTime bounds CheckFile. In that time about a gigabyte is read; a cut file is
// noticed at once.
const checkTime = 10 * time.Second

// CheckFile reads an SQLite file and reports damage as ErrUnusable, with the file and what
// to do. It is no error if there is no file. A large file is checked only in part.
func CheckFile(ctx context.Context, path string) (err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	const remedy = "the file is damaged, or was copied while it was written: restore it from a backup, as docs/backup.md describes"
	if torn, err := isTorn(path); err != nil {
		return err
	} else if torn {
		return fmt.Errorf("check %s: %w: %s (it ends in the middle of a page)", path, ErrUnusable, remedy)
	}
	db, err := sql.Open("sqlite", fileURL(path, url.Values{"mode": {"rw"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout)}}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	limited, stop := context.WithTimeout(ctx, checkTime)
	defer stop()
	var found string
	err = db.QueryRowContext(limited, "PRAGMA quick_check(1)").Scan(&found)
	switch {
	case limited.Err() != nil:
		return ctx.Err()
	case mayNotWrite(err):
		return nil // who opens it says so
	case err != nil:
		return fmt.Errorf("check %s: %w", path, damaged(path, err))
	case found != "ok":
		return fmt.Errorf("check %s: %w: %s (%s)", path, ErrUnusable, remedy, found)
	}
	return nil
}

// isTorn reports whether a file without a log ends in the middle of a page, which SQLite
// itself reads as zeros (https://sqlite.org/fileformat.html#the_database_header). With a
// log, a killed process may leave such a file, and the log has the page.
func isTorn(path string) (bool, error) {
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return false, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // it was only read
	header := make([]byte, 18)
	if _, err := f.ReadAt(header, 0); err != nil {
		return false, nil // not even a header: SQLite says what it is
	}
	stat, err := f.Stat()
	if err != nil {
		return false, err
	}
	page := int64(binary.BigEndian.Uint16(header[16:]))
	if page == 1 {
		page = 1 << 16
	}
	return string(header[:15]) == "SQLite format 3" && page > 0 && stat.Size()%page != 0, nil
}

// firstConn opens a connection, and waits while other processes open the same new file.
// It has to wait itself, because SQLite does not wait while another connection turns on a
// new file's log. Later connections find the log turned on.
func firstConn(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	for began := time.Now(); ; {
		conn, err := db.Conn(ctx)
		if !isBusy(err) || time.Since(began) > busyTimeout*time.Millisecond {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// isBusy reports whether SQLite gave up because another connection has a lock.
func isBusy(err error) bool {
	var failed *driver.Error
	return errors.As(err, &failed) && failed.Code()&primaryCode == lib.SQLITE_BUSY
}

// primaryCode masks the bits of an error code that give its kind; the others give
// details.
const primaryCode = 0xff

// sqliteDSN returns a data source name in which no character of path is read as an
// option.
func sqliteDSN(path string, pragmas ...string) string {
	pragmas = append([]string{
		fmt.Sprintf("busy_timeout(%d)", busyTimeout), "journal_mode(wal)", "synchronous(normal)", "foreign_keys(1)",
	}, pragmas...)
	return fileURL(path, url.Values{"_pragma": pragmas, "_txlock": {"immediate"}})
}

func fileURL(path string, options url.Values) string {
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: options.Encode()}
	return u.String()
}

func (s *sqlite) Read() Querier { return s.reads }

func (s *sqlite) ReadOften() Querier { return s.often }

func (s *sqlite) Schema(ctx context.Context) (int, error) { return schemaOfFile(ctx, s.reads) }

// schemaOfFile reads the number of the schema. Tables without a number are those of
// another program.
func schemaOfFile(ctx context.Context, db *sql.DB) (number int, err error) {
	var numbered, tables int
	err = db.QueryRowContext(ctx, `SELECT COALESCE(SUM(name = 'goose_db_version'), 0), COUNT(*) FROM sqlite_master WHERE type = 'table'`).Scan(&numbered, &tables)
	switch {
	case err != nil:
		return 0, fmt.Errorf("look for the schema: %w", err)
	case numbered == 0 && tables > 0:
		return 0, foreign()
	case numbered == 0:
		return 0, nil
	}
	if err := db.QueryRowContext(ctx, applied).Scan(&number); err != nil {
		return 0, fmt.Errorf("read the schema's number: %w", err)
	}
	return number, nil
}

// Migrate tries again after an error. Another process may have applied the same migration
// between this process's check and its own attempt; SQLite lets only one of them commit.
// That can happen with each migration, and with the table of applied migrations.
func (s *sqlite) Migrate(ctx context.Context) (int, error) {
	db, err := sql.Open("sqlite", sqliteDSN(s.path))
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	all, err := migrations.ReadDir("migrations")
	if err != nil {
		return 0, err
	}
	var applied int
	for range len(all) + 2 {
		if applied, err = applyMigrations(ctx, db, goose.DialectSQLite3); err == nil {
			return applied, nil
		}
	}
	return applied, err
}

// Settle implements DB. It copies the log, which then stays short.
func (s *sqlite) Settle(ctx context.Context) { s.checkpoints.copy(ctx) }

// Scrub implements DB. The space of removed rows has been overwritten by then, but pages
// may keep older copies of rows, which only rewriting the file removes. It empties the log,
// unless other processes read or write at the moment.
func (s *sqlite) Scrub(ctx context.Context, whole bool) (err error) {
	db, err := sql.Open("sqlite", sqliteDSN(s.path, "secure_delete(1)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(2)
	if whole {
		if _, err := db.ExecContext(ctx, "VACUUM"); err != nil {
			return fmt.Errorf("rewrite %s: %w", s.path, err)
		}
	}
	if err := emptyLog(ctx, db, s.path); err != nil {
		return fmt.Errorf("empty the log of %s: %w", s.path, err)
	}
	return nil
}

// ErrBusy means that the log of an SQLite file could not be emptied, because other
// processes used it all the time.
var ErrBusy = errors.New("other processes use it: try again when they are less busy, or have ended")

// Settle implements DB.
func (r *readOnly) Settle(context.Context) {}

// Scrub implements DB.
func (r *readOnly) Scrub(context.Context, bool) error { return ErrReadOnly }

// sqliteClock ticks in milliseconds, which is enough for leases.
const sqliteClock = `CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000000`

func (s *sqlite) Clock() string { return sqliteClock }

func (s *sqlite) Close() error {
	return errors.Join(s.often.Close(), s.reads.Close(), s.writer.Close())
}
