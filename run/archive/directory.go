package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/record"
)

// Errors of Extract. None of them gets better by waiting alone.
var (
	// ErrNotEmpty means that a directory has files already.
	ErrNotEmpty = errors.New("the directory is not empty")
	// ErrFile means that a file has the name of the directory.
	ErrFile = errors.New("it is a file")
	// ErrNone means that there are no histories of a run any more.
	ErrNone = errors.New("no history is left")
	// ErrChanged means that a task was removed from the run while its histories were read.
	ErrChanged = errors.New("a task was removed from the run meanwhile: give the command again")
)

// Extraction says what Extract did. The keys of its JSON are a public contract.
type Extraction struct {
	Directory string `json:"directory"`
	// From is "archive", or "temporal" if the run has no archive since its end.
	From string `json:"from"`
	// Open counts the workflows that have not closed: their files end where they were.
	Open int `json:"open"`
	Manifest
}

// Where the histories of an Extraction come from.
const (
	FromArchive  = "archive"
	FromTemporal = "temporal"
)

// Archives is the record of archives.
type Archives interface {
	Archive(ctx context.Context, run string) (record.Archive, error)
	RemovedTasks(ctx context.Context, run string) (int, error)
}

// Extract writes the histories of a run into a directory, which is made if it is absent, and
// ErrNotEmpty if it has files. They come from the archive if it is on record and the run did
// not go on since. Otherwise dial connects to Temporal, and they come from there and from an
// earlier archive; a run under way then has histories that have not ended. If Extract fails, it
// removes the files that it has written.
func Extract(ctx context.Context, s Archives, blobs Blobs, run record.Run, dial func() (Temporal, error), dir string) (_ Extraction, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the histories of run %s to %s: %w", run.Name, dir, err)
		}
	}()
	out := Extraction{Directory: dir, From: FromArchive}
	removed, err := s.RemovedTasks(ctx, run.Name) // before the histories are read
	if err != nil {
		return out, err
	}
	a, err := s.Archive(ctx, run.Name)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return out, err
	}
	archived := err == nil && run.Status != record.Running && a.Finished.Equal(run.Finished) && a.Removed.IsZero()
	if archived && a.Digest == "" {
		return out, fmt.Errorf("%w: Temporal had deleted all of them before they were archived", ErrNone)
	}
	var from *Reader
	gaps := gapsOf(removed)
	if a.Digest != "" && a.Removed.IsZero() {
		from, err = Open(ctx, blobs, a)
		switch {
		case !archived && errors.Is(err, record.ErrNotFound): // what Temporal still has is more than nothing
			from, gaps = nil, append(gaps, GapArchive)
		case err != nil:
			return out, err
		default:
			defer func() { _ = from.Close() }() // only read
		}
	}
	to := &directory{path: dir}
	if err := to.make(); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, to.close(err != nil)) }()
	if archived {
		out.Manifest = from.Manifest
		return out, from.Write(to)
	}
	out.From = FromTemporal
	temporal, err := dial()
	if err != nil {
		return out, fmt.Errorf("it has no archive of its end yet, and its histories can't be had from Temporal: %w", err)
	}
	if out.Manifest, err = temporal.write(ctx, selection{run: run, before: from, gaps: gaps}, to); err != nil {
		return out, err
	}
	if len(out.Histories) == 0 {
		return out, fmt.Errorf("%w: it has no archive, and Temporal has none", ErrNone)
	}
	for _, h := range out.Histories {
		if h.Closed == nil {
			out.Open++
		}
	}
	now, err := s.RemovedTasks(ctx, run.Name)
	if err == nil && now != removed {
		err = ErrChanged
	}
	return out, err
}

// directory is a directory of files that are written one after the other.
type directory struct {
	path    string
	created bool     // whether make has made it
	names   []string // of the files
	file    *os.File // the last one, which is open
	buffer  *bufio.Writer
}

func (d *directory) make() error {
	if at, err := os.Stat(d.path); err == nil && !at.IsDir() {
		return fmt.Errorf("%w: give a directory that is empty or not there", ErrFile)
	}
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		d.created = true
		return os.MkdirAll(d.path, 0o755)
	}
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("%w: give another one", ErrNotEmpty)
	}
	return err
}

// Create implements Files.
func (d *directory) Create(name string) (_ io.Writer, err error) {
	if err := d.end(); err != nil {
		return nil, err
	}
	if !filepath.IsLocal(name) || filepath.Base(name) != name {
		return nil, fmt.Errorf("%q is no name of a file", name)
	}
	if d.file, err = os.OpenFile(filepath.Join(d.path, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
		return nil, err
	}
	d.names = append(d.names, name)
	d.buffer = bufio.NewWriter(d.file)
	return d.buffer, nil
}

// end ends the file that is open.
func (d *directory) end() error {
	if d.file == nil {
		return nil
	}
	err := errors.Join(d.buffer.Flush(), d.file.Close())
	d.file = nil
	return err
}

// close ends the last file. If writing has failed, it removes what was written.
func (d *directory) close(failed bool) error {
	err := d.end()
	if err == nil && !failed {
		return nil
	}
	for _, name := range d.names {
		err = errors.Join(err, os.Remove(filepath.Join(d.path, name)))
	}
	if d.created {
		err = errors.Join(err, os.Remove(d.path))
	}
	return err
}
