// Package archive keeps the histories of runs after Temporal has deleted them.
//
// Temporal deletes the history of a workflow some time after the workflow has closed. An
// archive has the histories of a run until then: those of its own workflow, also from before
// resets and continuations, and of all workflows below it. It is a zip file in the blob
// store, and a row of the store names it. In the file each history is a JSON document, in the
// form of Temporal's History, which SDKs replay and its Web UI imports; [ManifestFile] says what
// they are.
//
// An [Archiver] makes the archives, in any number of processes at once. [Extract] writes the
// histories of a run into a directory, from its archive or from Temporal.
//
// Guarantees:
//
//   - A history is in an archive whole or not at all, and an archive is on record only when
//     its file is complete. The file gets its name in the transaction that puts the archive on
//     record, so a removal of the run comes before both or after both. A process that is killed
//     leaves at most a file that is noted, which is removed as any file that nobody needs, and
//     a temporary one, which a collection of files removes an hour later.
//   - One archiver at a time works on a run. If it is killed, another one does half a minute
//     later.
//   - A history is read in pages and compressed as it comes, so memory does not grow with it.
//   - If a run goes on after it was archived, its next archive has the histories of the one
//     before.
//   - No archive is put on record while a task is removed from its run, or with what was read
//     before that.
//
// Histories may be missing: Temporal may have deleted those of workflows that closed early in a
// long run, a person may have deleted some, and a workflow may not have closed. [Manifest.Gaps]
// says which of this may be so, and [Manifest.Missing] which executions are known to be missing,
// because other histories name them.
//
// It is no archival in Temporal's sense, which a server has to be configured for, and no
// backup: a run can't be continued from it.
package archive

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fulgurite/fulgurite/record"
)

// ManifestFile is the name of the manifest in an archive.
const ManifestFile = "manifest.json"

// format names the form of archives.
const format = "fulgurite.histories/1"

// Manifest says what an archive has. The keys of its JSON are a public contract.
type Manifest struct {
	Format string        `json:"format"`
	Run    string        `json:"run"`
	Status record.Status `json:"status"` // of the run
	// Complete says that there are no gaps.
	Complete bool  `json:"complete"`
	Gaps     []Gap `json:"gaps,omitempty"`
	// Histories are ordered by the start of their workflows.
	Histories []History `json:"histories"`
	// Missing are executions of the run whose histories are not there.
	Missing []Missing `json:"missing,omitempty"`
}

// Gap is a reason why histories of a run may be missing.
type Gap string

// The gaps.
const (
	GapArchive   Gap = "archive_lost" // the file of an earlier archive is gone
	GapDeleted   Gap = "deleted"      // Temporal no longer has an execution that it, or another history, names
	GapOpen      Gap = "open"         // the run has ended, and a workflow below it had not closed
	GapRetention Gap = "retention"    // for longer than Temporal keeps histories, none were archived
	GapTask      Gap = "task_removed" // a task was forgotten, and what Temporal had of it is deleted
)

// Execution is one execution of a workflow.
type Execution struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"` // Temporal's id of the execution
}

// Missing is an execution that is not in an archive.
type Missing struct {
	Execution
	Open bool `json:"open"` // it had not closed; otherwise it was deleted
}

// History is that of one execution of a workflow.
type History struct {
	File string `json:"file"`
	Execution
	Type    string     `json:"type"`   // of the workflow
	Status  string     `json:"status"` // as Temporal's command line shows it, such as Completed
	Started time.Time  `json:"started"`
	Closed  *time.Time `json:"closed,omitempty"`
	Events  int64      `json:"events"`
}

// Blobs reads blobs.
type Blobs interface {
	Open(ctx context.Context, digest string) (content io.ReadCloser, size int64, err error)
	Path(digest string) (string, error)
}

// Reader reads an archive. Close it.
type Reader struct {
	Manifest Manifest
	// Archived is when the archive was made.
	Archived time.Time

	file   *os.File
	byName map[string]*zip.File
}

// Open opens the archive of a run that is on record. It reads the file once, and refuses one
// that is damaged.
func Open(ctx context.Context, blobs Blobs, a record.Archive) (_ *Reader, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open the archived histories of run %s, %s: %w", a.Run, a.Digest, err)
		}
	}()
	content, size, err := blobs.Open(ctx, a.Digest)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, content)
	if err := errors.Join(err, content.Close()); err != nil {
		return nil, err
	}
	path, err := blobs.Path(a.Digest)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{Archived: a.Archived, file: f, byName: map[string]*zip.File{}}
	files, err := zip.NewReader(f, size)
	if err == nil {
		for _, one := range files.File {
			r.byName[one.Name] = one
		}
		err = r.readManifest(files)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *Reader) readManifest(files *zip.Reader) error {
	f, err := files.Open(ManifestFile)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", ManifestFile, err)
	}
	if err := json.Unmarshal(text, &r.Manifest); err != nil {
		return fmt.Errorf("decode %s: %w", ManifestFile, err)
	}
	if r.Manifest.Format != format {
		return fmt.Errorf("%s: format %q: want %s", ManifestFile, r.Manifest.Format, format)
	}
	return nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Write writes the files of an archive, the manifest last.
func (r *Reader) Write(to Files) error {
	for _, h := range r.Manifest.Histories {
		if err := r.copyTo(h.File, to); err != nil {
			return err
		}
	}
	return writeManifest(r.Manifest, to)
}

// copyTo copies one file. From archive to archive it is copied as it is compressed.
func (r *Reader) copyTo(name string, to Files) error {
	f, ok := r.byName[name]
	if !ok {
		return fmt.Errorf("the archive lacks %s", name)
	}
	if out, ok := to.(*zip.Writer); ok {
		return out.Copy(f)
	}
	from, err := f.Open()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	w, err := to.Create(name)
	if err == nil {
		_, err = io.Copy(w, from)
	}
	if err := errors.Join(err, from.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	return nil
}
