package sqlmatch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"modernc.org/libc"
	_ "modernc.org/sqlite" // it prepares the library below for Go
	sqlite3 "modernc.org/sqlite/lib"
)

// Limits of every query.
const (
	// longestValue is the largest number of bytes of a value, also of intermediate ones.
	// The time of some functions grows with the square of that number.
	longestValue = 128 << 10
	longestQuery = 64 << 10
	// maxRows and maxBytes limit the result of a gold query. The result that is
	// compared with it is read only as long as it can still be equal.
	maxRows  = 200_000
	maxBytes = 64 << 20
	// cacheKB is the memory that a query may use for each of its tables and sorters.
	// Everything beyond that goes to temporary files.
	cacheKB = 4096
	// maxTemporary is how many bytes a query may write into all of its temporary files.
	maxTemporary = 256 << 20
	// stepsPerSecond turns a limit in seconds into a limit in steps of SQLite's virtual
	// machine, which a query reaches at the same step on every machine. Most machines run
	// more steps in a second.
	stepsPerSecond = 20_000_000
	// stepsPerCheck is the number of steps between two checks of the limits.
	stepsPerCheck = 1000
)

// The reasons for ending a query.
var (
	errSteps   = errors.New("too many steps")
	errTime    = errors.New("too much time")
	errFiles   = fmt.Errorf("more than %d MiB in temporary files", maxTemporary>>20)
	errRows    = errors.New("more rows than can be equal")
	errBytes   = errors.New("more bytes than can be equal")
	errColumns = errors.New("another number of columns")
	errSeveral = errors.New("more than one statement")
	errNothing = errors.New("no statement")
	errNUL     = errors.New("a character of code 0")
	errRefused = errors.New("a statement that does more than select")
)

// errNoDatabase is the error of opening a file that is something else.
var errNoDatabase = errors.New("the file is not an SQLite database")

// sqliteError is an error of SQLite about a query or a file.
type sqliteError struct {
	code int32
	text string
}

func (e sqliteError) Error() string { return fmt.Sprintf("%s (code %d)", e.text, e.code) }

// broken reports whether the cause is the file or the machine, and not the query.
func (e sqliteError) broken() bool {
	switch e.code & 0xff {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
		sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PERM,
		sqlite3.SQLITE_FULL: // this machine's disk is full; if a query reached its own limit, the error is errFiles
		return true
	}
	return false
}

// connection reads one database. It serves one query at a time.
type connection struct {
	tls     *libc.TLS
	db      uintptr
	scratch uintptr // room for two pointers
	files   *temporaryFiles

	// The library calls these functions. The fields keep the garbage collector from
	// freeing them.
	progress  func(*libc.TLS, uintptr) int32
	authorize func(tls *libc.TLS, arg uintptr, action int32, a, b, database, trigger uintptr) int32

	ctx      context.Context // of the current query
	deadline time.Time
	checks   int   // number of checks that are left
	written  int   // bytes in temporary files
	ended    error // why the query was ended
}

// open opens a database for reading.
func open(path string) (*connection, error) {
	c := &connection{tls: libc.NewTLS(), ctx: context.Background()}
	c.scratch = libc.Xmalloc(c.tls, 16)
	address, unchanging := address(path)
	flags := int32(sqlite3.SQLITE_OPEN_READONLY | sqlite3.SQLITE_OPEN_NOMUTEX)
	if unchanging {
		flags |= sqlite3.SQLITE_OPEN_URI
	}
	name, err := libc.CString(address)
	if err != nil || c.scratch == 0 {
		return nil, errors.Join(err, c.close())
	}
	defer libc.Xfree(c.tls, name)
	if c.files, err = newTemporaryFiles(c.tls, c.mayWrite); err != nil {
		return nil, errors.Join(err, c.close())
	}
	code := sqlite3.Xsqlite3_open_v2(c.tls, name, c.scratch, flags, c.files.name)
	c.files.unregister(c.tls)
	c.db = c.pointer(0)
	if code != sqlite3.SQLITE_OK {
		return nil, errors.Join(c.failure(code), c.close())
	}
	c.prepareLimits()
	for _, pragma := range []string{"query_only=1", "trusted_schema=0", "mmap_size=0", "temp_store=1", fmt.Sprintf("cache_size=-%d", cacheKB), "cell_size_check=1", "schema_version"} {
		c.allow(context.Background(), time.Minute)
		_, err := c.query("PRAGMA "+pragma, bounds{rows: maxRows, bytes: maxBytes, columns: -1})
		var failure sqliteError
		switch {
		case err == nil:
		case errors.As(err, &failure) && failure.code&0xff == sqlite3.SQLITE_NOTADB:
			return nil, errors.Join(errNoDatabase, c.close())
		case walOf(path) != (wal{}):
			return nil, errors.Join(unreadable(path, err), c.close())
		default:
			return nil, errors.Join(fmt.Errorf("set %s: %w", pragma, err), c.close())
		}
	}
	c.authorize = onlySelect
	sqlite3.Xsqlite3_set_authorizer(c.tls, c.db, *(*uintptr)(unsafe.Pointer(&c.authorize)), 0)
	return c, nil
}

func (c *connection) prepareLimits() {
	for id, most := range map[int32]int32{
		sqlite3.SQLITE_LIMIT_LENGTH:              longestValue,
		sqlite3.SQLITE_LIMIT_SQL_LENGTH:          longestQuery,
		sqlite3.SQLITE_LIMIT_EXPR_DEPTH:          500,
		sqlite3.SQLITE_LIMIT_COMPOUND_SELECT:     100,
		sqlite3.SQLITE_LIMIT_VDBE_OP:             1 << 20,
		sqlite3.SQLITE_LIMIT_ATTACHED:            0,
		sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
		sqlite3.SQLITE_LIMIT_WORKER_THREADS:      0,
	} {
		sqlite3.Xsqlite3_limit(c.tls, c.db, id, most)
	}
	c.progress = func(*libc.TLS, uintptr) int32 { return c.check() }
	sqlite3.Xsqlite3_progress_handler(c.tls, c.db, stepsPerCheck, *(*uintptr)(unsafe.Pointer(&c.progress)), 0)
}

// onlySelect refuses whatever a SELECT does not need.
func onlySelect(_ *libc.TLS, _ uintptr, action int32, _, name, _, _ uintptr) int32 {
	switch action {
	case sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE:
		return sqlite3.SQLITE_OK
	case sqlite3.SQLITE_FUNCTION:
		if name != 0 && strings.EqualFold(libc.GoString(name), "load_extension") {
			return sqlite3.SQLITE_DENY
		}
		return sqlite3.SQLITE_OK
	}
	return sqlite3.SQLITE_DENY
}

// allow sets the context and the limits of the next query.
func (c *connection) allow(ctx context.Context, most time.Duration) {
	c.ctx, c.deadline, c.written, c.ended = ctx, time.Now().Add(most), 0, nil
	c.checks = int(most.Seconds() * stepsPerSecond / stepsPerCheck)
}

// check ends a query that is over a limit.
func (c *connection) check() int32 {
	c.checks--
	switch {
	case c.ctx.Err() != nil:
		c.ended = c.ctx.Err()
	case c.checks < 0:
		c.ended = errSteps
	case time.Now().After(c.deadline):
		c.ended = errTime
	default:
		return 0
	}
	return 1
}

// mayWrite counts the bytes that a query writes into temporary files, and ends a query
// that exceeds the limit.
func (c *connection) mayWrite(size int) bool {
	if c.written += size; c.written > maxTemporary {
		c.ended = errFiles
	}
	return c.ended == nil
}

// bounds limit the result of a query.
type bounds struct {
	rows, bytes int
	columns     int  // -1 for any number
	distinct    bool // keeps one of several equal rows, and counts only that one
}

// query executes one statement, in the limits of allow, and returns its rows.
func (c *connection) query(text string, b bounds) (table, error) {
	var out table
	known := map[string]bool{}
	columns, err := c.each(text, b.columns, func(row []any, size int) error {
		if b.distinct {
			key := keyOf(row)
			if known[key] {
				return nil
			}
			known[key] = true
		}
		if len(out.rows) == b.rows {
			return errRows
		}
		out.rows = append(out.rows, row)
		if out.bytes += size; out.bytes > b.bytes {
			return errBytes
		}
		return nil
	})
	out.columns = columns
	return out, err
}

// each executes one statement, in the limits of allow, and calls visit with each row and
// how many bytes its texts and blobs have. An error of visit ends it. It is an error if
// the statement returns another number of columns than the given one; -1 is any number.
func (c *connection) each(text string, columns int, visit func(row []any, size int) error) (int, error) {
	statement, err := c.compile(text)
	if err != nil {
		return 0, err
	}
	defer sqlite3.Xsqlite3_finalize(c.tls, statement)
	count := int(sqlite3.Xsqlite3_column_count(c.tls, statement))
	if columns >= 0 && count != columns {
		return count, errColumns
	}
	for {
		switch code := sqlite3.Xsqlite3_step(c.tls, statement); code {
		case sqlite3.SQLITE_DONE:
			return count, nil
		case sqlite3.SQLITE_ROW:
			if err := visit(c.row(statement, count)); err != nil {
				return count, err
			}
		default:
			return count, c.failure(code)
		}
	}
}

// compile compiles a text that is one statement.
func (c *connection) compile(text string) (uintptr, error) {
	if strings.ContainsRune(text, 0) {
		return 0, errNUL
	}
	if len(text) > longestQuery {
		return 0, sqliteError{sqlite3.SQLITE_TOOBIG, "the query is too long"}
	}
	if expanded(text) > maxExpanded {
		return 0, errSteps
	}
	source, err := libc.CString(text)
	if err != nil {
		return 0, err
	}
	defer libc.Xfree(c.tls, source)
	if code := sqlite3.Xsqlite3_prepare_v2(c.tls, c.db, source, -1, c.scratch, c.scratch+8); code != sqlite3.SQLITE_OK {
		return 0, c.failure(code)
	}
	statement, rest := c.pointer(0), c.pointer(8)
	switch {
	case statement == 0:
		return 0, errNothing
	case !onlyBlank(libc.GoString(rest)):
		sqlite3.Xsqlite3_finalize(c.tls, statement)
		return 0, errSeveral
	}
	return statement, nil
}

// row returns the current row of a statement, and how many bytes its texts and blobs
// have.
func (c *connection) row(statement uintptr, columns int) ([]any, int) {
	values, size := make([]any, columns), 0
	for i := range values {
		at := int32(i)
		switch sqlite3.Xsqlite3_column_type(c.tls, statement, at) {
		case sqlite3.SQLITE_INTEGER:
			values[i] = sqlite3.Xsqlite3_column_int64(c.tls, statement, at)
		case sqlite3.SQLITE_FLOAT:
			values[i] = sqlite3.Xsqlite3_column_double(c.tls, statement, at)
		case sqlite3.SQLITE_TEXT:
			text := sqlite3.Xsqlite3_column_text(c.tls, statement, at)
			raw := libc.GoBytes(text, int(sqlite3.Xsqlite3_column_bytes(c.tls, statement, at)))
			values[i] = strings.ToValidUTF8(string(raw), "") // the official evaluation reads texts in this way
			size += len(raw)
		case sqlite3.SQLITE_BLOB:
			data := sqlite3.Xsqlite3_column_blob(c.tls, statement, at)
			raw := libc.GoBytes(data, int(sqlite3.Xsqlite3_column_bytes(c.tls, statement, at)))
			values[i] = blob(raw)
			size += len(raw)
		}
	}
	return values, size
}

// failure returns the error for a code: the reason for which the query was ended, or
// SQLite's message.
func (c *connection) failure(code int32) error {
	switch {
	case c.ended != nil:
		return c.ended
	case code&0xff == sqlite3.SQLITE_AUTH, code&0xff == sqlite3.SQLITE_READONLY:
		return errRefused
	case c.db == 0:
		return sqliteError{code, "out of memory"}
	}
	return sqliteError{code, libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db))}
}

// pointer returns a pointer that the library has written to scratch.
func (c *connection) pointer(offset uintptr) uintptr {
	raw := libc.GoBytes(c.scratch+offset, int(unsafe.Sizeof(offset)))
	if len(raw) == 4 {
		return uintptr(binary.NativeEndian.Uint32(raw))
	}
	return uintptr(binary.NativeEndian.Uint64(raw))
}

func (c *connection) close() error {
	var err error
	if c.db != 0 {
		if code := sqlite3.Xsqlite3_close_v2(c.tls, c.db); code != sqlite3.SQLITE_OK {
			err = fmt.Errorf("close database: code %d", code)
		}
	}
	if c.files != nil {
		c.files.free(c.tls)
	}
	libc.Xfree(c.tls, c.scratch)
	c.tls.Close()
	return err
}

// temporaryKinds are the kinds of files that SQLite makes for its own use: for sorters,
// for tables with intermediate results, and for their journals.
const temporaryKinds = sqlite3.SQLITE_OPEN_TEMP_DB | sqlite3.SQLITE_OPEN_TRANSIENT_DB | sqlite3.SQLITE_OPEN_TEMP_JOURNAL | sqlite3.SQLITE_OPEN_SUBJOURNAL

// Methods of files and of file systems, as the library calls them.
type (
	openFile  = func(tls *libc.TLS, system, name, file uintptr, flags int32, out uintptr) int32
	writeFile = func(tls *libc.TLS, file, data uintptr, size int32, offset int64) int32
)

// temporaryFiles is a file system for SQLite: the system's, except that allowed decides
// about every write into a temporary file. SQLite has no limit on these files, and its
// counters include those of a sorter only after the sorter has ended.
type temporaryFiles struct {
	allowed func(size int) bool

	name, own uintptr // the file system that SQLite gets, and its name
	system    uintptr // the system's file system
	open      openFile
	kinds     []*temporaryKind
}

// temporaryKind has the methods for one kind of files, the system's and those that
// replace them.
type temporaryKind struct {
	system, own uintptr
	write       writeFile
}

// newTemporaryFiles registers a file system. allowed is asked for each write, on the
// goroutine of the query.
func newTemporaryFiles(tls *libc.TLS, allowed func(size int) bool) (*temporaryFiles, error) {
	t := &temporaryFiles{allowed: allowed, system: sqlite3.Xsqlite3_vfs_find(tls, 0)}
	if t.system == 0 {
		return nil, errors.New("SQLite knows no files of this system")
	}
	methods := *at[sqlite3.Tsqlite3_vfs](t.system)
	t.own = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods)))
	name, err := libc.CString(fmt.Sprintf("counted-%x", t.own))
	if t.name = name; err != nil || t.own == 0 {
		t.free(tls)
		return nil, sqliteError{sqlite3.SQLITE_NOMEM, "out of memory"}
	}
	t.open = t.openCounted
	methods.FpNext, methods.FzName, methods.FxOpen = 0, t.name, *(*uintptr)(unsafe.Pointer(&t.open))
	*at[sqlite3.Tsqlite3_vfs](t.own) = methods
	if code := sqlite3.Xsqlite3_vfs_register(tls, t.own, 0); code != sqlite3.SQLITE_OK {
		t.free(tls)
		return nil, sqliteError{code, "register a file system"}
	}
	return t, nil
}

// unregister makes the file system unavailable to new connections. The connection that
// was opened with it can still use it.
func (t *temporaryFiles) unregister(tls *libc.TLS) { sqlite3.Xsqlite3_vfs_unregister(tls, t.own) }

// openCounted opens a file like the system does. Before SQLite writes into a temporary
// file, allowed is called.
func (t *temporaryFiles) openCounted(tls *libc.TLS, _, name, file uintptr, flags int32, out uintptr) int32 {
	open := at[sqlite3.Tsqlite3_vfs](t.system).FxOpen
	code := (*(*openFile)(unsafe.Pointer(&struct{ uintptr }{open})))(tls, t.system, name, file, flags, out)
	if code != sqlite3.SQLITE_OK || flags&temporaryKinds == 0 {
		return code
	}
	opened := at[sqlite3.Tsqlite3_file](file)
	kind := t.kind(tls, opened.FpMethods)
	if kind == nil {
		return sqlite3.SQLITE_NOMEM
	}
	opened.FpMethods = kind.own
	return code
}

// kind returns the methods that replace the given ones of the system. It returns nil if
// there is no memory.
func (t *temporaryFiles) kind(tls *libc.TLS, system uintptr) *temporaryKind {
	for _, k := range t.kinds {
		if k.system == system {
			return k
		}
	}
	methods := *at[sqlite3.Tsqlite3_io_methods](system)
	k := &temporaryKind{system: system, own: libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods)))}
	if k.own == 0 {
		return nil
	}
	write := *(*writeFile)(unsafe.Pointer(&struct{ uintptr }{methods.FxWrite}))
	k.write = func(tls *libc.TLS, file, data uintptr, size int32, offset int64) int32 {
		if !t.allowed(int(size)) {
			return sqlite3.SQLITE_FULL
		}
		return write(tls, file, data, size, offset)
	}
	methods.FxWrite = *(*uintptr)(unsafe.Pointer(&k.write))
	*at[sqlite3.Tsqlite3_io_methods](k.own) = methods
	t.kinds = append(t.kinds, k)
	return k
}

// free frees the memory to which the library has pointers. Call it after the connection
// is closed.
func (t *temporaryFiles) free(tls *libc.TLS) {
	libc.Xfree(tls, t.own)
	libc.Xfree(tls, t.name)
	for _, k := range t.kinds {
		libc.Xfree(tls, k.own)
	}
}

// at returns a pointer to the value at an address in the library's memory.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// walSuffix ends the name of the file in which a database in WAL mode collects changes.
const walSuffix = "-wal"

// wal describes the collected changes of a database in WAL mode. The zero value means that
// there are none.
type wal struct {
	size     int64
	modified time.Time
}

// walOf returns the collected changes of the database at a path. Changes without content
// are none.
func walOf(path string) wal {
	stat, err := os.Stat(path + walSuffix)
	if err != nil || stat.Size() == 0 {
		return wal{}
	}
	return wal{stat.Size(), stat.ModTime()}
}

// isWAL reports whether a database is in WAL mode, by bytes 18 and 19 of its header
// (https://sqlite.org/fileformat2.html#file_format_version_numbers).
func isWAL(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var header [20]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return false
	}
	return header[18] == 2 || header[19] == 2
}

// address returns the name by which SQLite opens a database. A database in WAL mode
// without collected changes is opened as one that nobody changes: otherwise SQLite would
// make files beside it, and could not read it in a folder where it may make none.
// unchanging reports that.
func address(path string) (name string, unchanging bool) {
	if !isWAL(path) || walOf(path) != (wal{}) {
		return path, false
	}
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(path))
	return "file:" + escaped + "?immutable=1", true
}

// unreadable explains why a database in WAL mode with collected changes can't be read.
func unreadable(path string, cause error) error {
	return fmt.Errorf("it is in WAL mode, and reading the changes in %s needs a file that can't be made or read in the folder %s: let this user write there, or put the changes into the database with `PRAGMA wal_checkpoint(TRUNCATE)`: %w",
		filepath.Base(path)+walSuffix, filepath.Dir(path), cause)
}
