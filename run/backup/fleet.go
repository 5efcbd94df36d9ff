package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/database"
)

// Fleet says where the records of a fleet are.
type Fleet struct {
	Store string // the address of a store in PostgreSQL
	Blobs string // the directory of blobs
}

// table is a table of a backup. The file with its rows has the name of the table and .copy.
type table struct {
	database.CopiedTable
	File
}

func (t table) file() string { return t.Name + ".copy" }

// WriteFleet makes a backup of a fleet's records in a directory, as Write does of a stack's.
func WriteFleet(ctx context.Context, directory string, from Fleet, o Options) (Report, error) {
	w := newWriter(directory, nil, from.Blobs, o)
	w.from = fleetOrigin{from, w.progress, w.reached}
	return w.run(ctx)
}

// fleetOrigin copies the tables of a store in PostgreSQL.
type fleetOrigin struct {
	Fleet

	progress *progress
	reached  func(stage string) error
}

func (f fleetOrigin) kind() Kind { return KindFleet }

func (f fleetOrigin) address() string { return f.Store }

func (f fleetOrigin) paths() []string { return nil }

func (f fleetOrigin) begin(ctx context.Context, in string) (moment, error) {
	s, err := store.Open(ctx, f.Store, nil)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.Snapshot(ctx)
	if errors.Is(err, database.ErrRewritten) {
		err = fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return fleetMoment{f, in, s, snapshot}, nil
}

// fleetMoment is the store of a fleet at one moment. The server keeps all rows that others remove
// until it is closed.
type fleetMoment struct {
	fleetOrigin

	in       string
	store    *store.Store
	snapshot *store.Snapshot
}

func (f fleetMoment) read(ctx context.Context, m *Manifest) (neededFiles, error) {
	return readStore(ctx, f.snapshot.Store, m)
}

func (f fleetMoment) ping(ctx context.Context) error { return f.snapshot.Ping(ctx) }

func (f fleetMoment) close() error { return errors.Join(f.snapshot.Close(), f.store.Close()) }

// copy checks nothing: the digests are those of what the server sent.
func (f fleetMoment) copy(ctx context.Context, m *Manifest) error {
	listed, err := f.snapshot.Tables(ctx)
	if err != nil {
		return err
	}
	tables := make([]table, len(listed))
	f.progress.begin(Progress{Tables: len(listed)}, nil)
	for i, one := range listed {
		tables[i].CopiedTable = one
		f.progress.table(one.Name)
		if err := copyTable(ctx, f.snapshot, f.in, &tables[i], f.progress); err != nil {
			return err
		}
		m.Tables, m.Rows, m.TableBytes = i+1, m.Rows+tables[i].Rows, m.TableBytes+tables[i].Bytes
		if err := f.reached("a table"); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(f.in, tablesFile), tables)
}

// copyTable writes the rows of a table into its file, and notes how many and what they are.
func copyTable(ctx context.Context, from *store.Snapshot, in string, t *table, p *progress) error {
	path := filepath.Join(in, t.file())
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	counted := &counter{sum: sha256.New(), added: func(bytes int64) error { return p.add(ctx, bytes) }}
	t.Rows, err = from.Copy(ctx, t.CopiedTable, io.MultiWriter(out, counted))
	if err := errors.Join(err, out.Flush(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	t.File = counted.file()
	return nil
}

// counter counts bytes and hashes them.
type counter struct {
	sum   hash.Hash
	n     int64
	added func(bytes int64) error // is called after each write
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	_, _ = c.sum.Write(p) // a hash takes everything
	c.n += int64(len(p))
	return len(p), c.added(int64(len(p)))
}

func (c *counter) file() File {
	return File{Bytes: c.n, SHA256: hex.EncodeToString(c.sum.Sum(nil))}
}
