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
//     its file is complete. A process that is killed leaves at most a file that is noted, which
//     is removed as any file that nobody needs.
//   - A history is read in pages and compressed as it comes, so memory does not grow with it.
//   - If a run goes on after it was archived, its next archive has the histories of the one
//     before.
//   - No archive is put on record while a task is removed from its run, or with what was read
//     before that.
//
// Temporal may have deleted histories before the archive was made, those of workflows that
// closed early in a long run. The package can't know them: [Manifest.Complete] says whether
// there may be some.
//
// It is no archival in Temporal's sense, which a server has to be configured for, and no
// backup: a run can't be continued from it.
package archive

import (
	"archive/zip"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
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
	// Complete is false if the run took longer than Temporal keeps histories, so that it may
	// have deleted some before they were read.
	Complete bool `json:"complete"`
	// Histories are ordered by the start of their workflows.
	Histories []History `json:"histories"`
}

// History is that of one execution of a workflow.
type History struct {
	File       string     `json:"file"`
	WorkflowID string     `json:"workflow_id"`
	RunID      string     `json:"run_id"` // Temporal's id of the execution
	Type       string     `json:"type"`   // of the workflow
	Status     string     `json:"status"` // as Temporal's command line shows it, such as Completed
	Started    time.Time  `json:"started"`
	Closed     *time.Time `json:"closed,omitempty"`
	Events     int64      `json:"events"`
}

// Files takes the files of an archive, one after the other. A *zip.Writer is one.
type Files interface {
	Create(name string) (io.Writer, error)
}

// Temporal is the server that has the histories.
type Temporal struct {
	Client    client.Client
	Namespace string
}

// errGone means that Temporal has deleted an execution since it was listed.
var errGone = errors.New("Temporal has deleted it")

// Write writes the histories of a run to files, the manifest last. before is an archive of the
// same run, nil if there is none: its histories are taken from there. closedOnly leaves out
// what is under way.
func (t Temporal) Write(ctx context.Context, run record.Run, before *Reader, closedOnly bool, to Files) (Manifest, error) {
	m := Manifest{Format: format, Run: run.Name, Status: run.Status, Histories: []History{}}
	var err error
	if m.Complete, err = t.complete(ctx, run, before); err != nil {
		return m, err
	}
	listed, err := t.executions(ctx, run)
	if err != nil {
		return m, err
	}
	kept := map[string]bool{}
	if before != nil {
		for _, h := range before.Manifest.Histories {
			kept[h.RunID] = true
			m.Histories = append(m.Histories, h)
		}
	}
	for _, e := range listed {
		if !kept[e.Execution.RunId] && (!closedOnly || e.CloseTime != nil) {
			m.Histories = append(m.Histories, described(e))
		}
	}
	slices.SortFunc(m.Histories, func(a, b History) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.WorkflowID, b.WorkflowID), strings.Compare(a.RunID, b.RunID))
	})
	written := m.Histories[:0]
	for _, h := range m.Histories {
		if kept[h.RunID] {
			err = before.copyTo(h.File, to)
		} else {
			h.Events, err = t.write(ctx, h, to)
		}
		if errors.Is(err, errGone) {
			m.Complete = false
			continue
		}
		if err != nil {
			return m, fmt.Errorf("read the history of workflow %s (%s): %w", h.WorkflowID, h.RunID, err)
		}
		written = append(written, h)
	}
	m.Histories = written
	if len(m.Histories) == 0 {
		return m, nil
	}
	return m, writeManifest(m, to)
}

func (t Temporal) executions(ctx context.Context, run record.Run) ([]*workflow.WorkflowExecutionInfo, error) {
	return runstate.Histories(t).Executions(ctx, run)
}

func writeManifest(m Manifest, to Files) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	w, err := to.Create(ManifestFile)
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", ManifestFile, err)
	}
	return nil
}

// complete reports whether Temporal can't have deleted histories of a run yet, but for those
// that an earlier archive has.
func (t Temporal) complete(ctx context.Context, run record.Run, before *Reader) (bool, error) {
	retention, err := t.Retention(ctx)
	if err != nil {
		return false, err
	}
	since := run.Created
	if before != nil && before.Manifest.Complete {
		since = before.Archived
	}
	return time.Since(since) < retention, nil
}

// Retention returns how long Temporal keeps the histories of closed workflows.
func (t Temporal) Retention(ctx context.Context) (time.Duration, error) {
	d, err := t.Client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: t.Namespace})
	if err != nil {
		return 0, fmt.Errorf("describe namespace %s: %w", t.Namespace, err)
	}
	return d.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), nil
}

func described(e *workflow.WorkflowExecutionInfo) History {
	h := History{
		File: fileName(e.Execution.WorkflowId, e.Execution.RunId), WorkflowID: e.Execution.WorkflowId, RunID: e.Execution.RunId,
		Type: e.GetType().GetName(), Status: e.Status.String(), Started: e.GetStartTime().AsTime(),
	}
	if e.CloseTime != nil {
		closed := e.CloseTime.AsTime()
		h.Closed = &closed
	}
	return h
}

// maxName is the length to which ids are cut in names of files: file systems take 255 bytes.
const maxName = 120

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// fileName returns a name of a file that no other execution has, because Temporal gives each
// its own id. The id of a workflow may be anything.
func fileName(workflowID, runID string) string {
	id := strings.TrimLeft(unfit.ReplaceAllString(workflowID, "_"), ".")
	return fmt.Sprintf("%s_%s.json", id[:min(len(id), maxName)], unfit.ReplaceAllString(runID, "_"))
}

// write writes one history, event by event, and returns how many events it has.
func (t Temporal) write(ctx context.Context, h History, to Files) (events int64, err error) {
	var w io.Writer
	it := t.Client.GetWorkflowHistory(ctx, h.WorkflowID, h.RunID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		event, err := it.Next()
		var gone *serviceerror.NotFound
		if w == nil && errors.As(err, &gone) {
			return 0, errGone
		}
		if err != nil {
			return events, err
		}
		text, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(event)
		if err != nil {
			return events, fmt.Errorf("encode event %d: %w", event.EventId, err)
		}
		before := ",\n"
		if w == nil {
			before = `{"events":[`
			if w, err = to.Create(h.File); err != nil {
				return events, err
			}
		}
		if _, err := w.Write(append([]byte(before), text...)); err != nil {
			return events, err
		}
		events++
	}
	if w == nil {
		return 0, errGone
	}
	_, err = io.WriteString(w, "]}\n")
	return events, err
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
