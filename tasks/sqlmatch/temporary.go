package sqlmatch

import (
	"errors"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

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
