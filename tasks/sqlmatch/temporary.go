package sqlmatch

import (
	"errors"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// temporaryKinds are the files that SQLite makes for itself: of sorters, of tables that
// hold a result in between, and their journals.
const temporaryKinds = sqlite3.SQLITE_OPEN_TEMP_DB | sqlite3.SQLITE_OPEN_TRANSIENT_DB | sqlite3.SQLITE_OPEN_TEMP_JOURNAL | sqlite3.SQLITE_OPEN_SUBJOURNAL

// Methods of files and of file systems, as the library calls them.
type (
	openFile  = func(tls *libc.TLS, system, name, file uintptr, flags int32, out uintptr) int32
	writeFile = func(tls *libc.TLS, file, data uintptr, size int32, offset int64) int32
)

// temporaryFiles are the system's files, but for one thing: whoever opened them is asked
// before anything is written into a temporary one. SQLite has no limit on those, and its
// counters name a sorter's only when it ends.
type temporaryFiles struct {
	allowed func(size int) bool

	name, own uintptr // what SQLite is given: a file system under a name
	system    uintptr // the one that it stands for
	open      openFile
	kinds     []*temporaryKind
}

// temporaryKind are the methods of files that have the same ones.
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

// unregister lets no other connection have it. The one that was opened with it goes on.
func (t *temporaryFiles) unregister(tls *libc.TLS) { sqlite3.Xsqlite3_vfs_unregister(tls, t.own) }

// openCounted opens a file as the system does. SQLite then writes into a temporary one by
// way of allowed.
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

// kind are the methods to use for the system's, nil without memory.
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

// free gives the memory back that the library has pointers to, once the connection is closed.
func (t *temporaryFiles) free(tls *libc.TLS) {
	libc.Xfree(tls, t.own)
	libc.Xfree(tls, t.name)
	for _, k := range t.kinds {
		libc.Xfree(tls, k.own)
	}
}

// at is the value at a place in the library's memory.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }
