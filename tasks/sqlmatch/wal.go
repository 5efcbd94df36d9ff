package sqlmatch

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

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
