package backup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/store"
)

// Kind says what a backup is of.
type Kind string

// The kinds of backups.
const (
	// KindStack is the directory of a stack, with its two SQLite databases.
	KindStack Kind = "stack"
	// KindFleet is a store in PostgreSQL with its blobs. Temporal's database is not in it.
	KindFleet Kind = "fleet"
)

// Manifest says what a backup has. It is the file manifest.json of the backup's directory.
type Manifest struct {
	Format  int    `json:"format"`
	Kind    Kind   `json:"kind"`
	Release string `json:"release"` // of the program that wrote it
	Schema  int    `json:"schema"`  // of the store
	Store   string `json:"store"`   // the store's id
	// Mark is the number of the store's moment, which Temporal's database in a stack's backup
	// has, too. It says nothing of a fleet's, and is negative if that was restored and nobody has
	// compared it with Temporal yet.
	Mark int64 `json:"mark"`
	// Began is before the moment of the databases, and Ended after it.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Databases is the directory that has the files.
	Databases string `json:"databases"`
	// Files are the databases, or the list of a store's tables, and the list of blobs, by name.
	Files map[string]File `json:"files"`
	// Tables, Rows and TableBytes count what was copied of a store in PostgreSQL, and are 0
	// otherwise.
	Tables     int   `json:"tables"`
	Rows       int64 `json:"rows"`
	TableBytes int64 `json:"table_bytes"`
	// BlobFiles and BlobBytes count all blobs.
	BlobFiles int   `json:"blob_files"`
	BlobBytes int64 `json:"blob_bytes"`
	Runs      []Run `json:"runs"` // the oldest first
}

// File describes a file of a backup.
type File struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // 64 hex digits
}

// readManifest reads the manifest of a backup's directory. It returns ErrNone if there is
// none.
func readManifest(directory string) (m Manifest, err error) {
	path := filepath.Join(directory, manifestFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, ErrNone
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%w: %s can't be read: %w", ErrDamaged, path, err)
	}
	if m.Format != format {
		return m, fmt.Errorf("%w: %s has format %d, and this program reads format %d", ErrRelease, path, m.Format, format)
	}
	if !strings.HasPrefix(m.Databases, databases) || m.Databases != filepath.Base(m.Databases) || m.Store == "" {
		return m, fmt.Errorf("%w: %s does not name the databases and the store", ErrDamaged, path)
	}
	m.Kind = cmp.Or(m.Kind, KindStack) // there was no other kind once
	if m.Kind != KindStack && m.Kind != KindFleet {
		return m, fmt.Errorf("%w: %s has kind %q, and this program knows %q and %q", ErrRelease, path, m.Kind, KindStack, KindFleet)
	}
	for _, name := range m.Kind.files() {
		if m.Files[name].SHA256 == "" {
			return m, fmt.Errorf("%w: %s does not describe %s", ErrDamaged, path, name)
		}
	}
	return m, nil
}

// files returns the names of the files that a manifest describes.
func (k Kind) files() []string {
	if k == KindFleet {
		return []string{tablesFile, listFile}
	}
	return []string{storeFile, temporalFile, listFile}
}

// checkSchema refuses a backup of a store that this program can't open.
func (m Manifest) checkSchema() error {
	needs, err := store.SchemaNumber()
	if err == nil && m.Schema != needs {
		err = fmt.Errorf("%w: its store has schema %d (release %s), and this program needs schema %d: restore it with the program of that release", ErrRelease, m.Schema, m.Release, needs)
	}
	return err
}

var digestsIn = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// named returns the digests in the manifest of a version, without that of its batch.
func named(text []byte, batch string) (out []string) {
	for _, digest := range digestsIn.FindAllString(string(text), -1) {
		if digest != batch {
			out = append(out, digest)
		}
	}
	return out
}

// isAbsent reports whether err means that there is no such file, or no directory that could have
// it.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// lockDirectory takes a directory of backups for this process, alone if it writes. The lock
// is the kernel's and ends with the returned file or with the process.
func lockDirectory(directory string, alone bool) (*os.File, error) {
	path := filepath.Join(directory, lockFile)
	f, err := os.Open(path)
	if isAbsent(err) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w: try again when that has ended", ErrBusy)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
