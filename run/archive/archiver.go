package archive

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
)

// Store keeps the record of archives.
type Store interface {
	UnarchivedRuns(ctx context.Context, endedBefore, archivedBefore time.Time) ([]record.Run, error)
	RemovedTasks(ctx context.Context, run string) (int, error)
	Archive(ctx context.Context, run string) (record.Archive, error)
	NoteArchive(ctx context.Context, run, digest string) error
	PutArchive(ctx context.Context, a, before record.Archive, removedTasks int) error
	DropArchive(ctx context.Context, run, digest string, remove func() error) error
}

// BlobWriter also stores and removes blobs.
type BlobWriter interface {
	Blobs
	PutNoted(ctx context.Context, r io.Reader, note func(digest string) error) (string, error)
	Remove(ctx context.Context, digest string) error
}

// Archiver archives the histories of runs that have ended, and of long runs in between. Any
// number of processes may do so: of two archives of one run the first counts.
type Archiver struct {
	Temporal
	Store Store
	Blobs BlobWriter
	Log   *zap.Logger
	Every time.Duration // between two rounds; 0 is the constant every
	// Settled is how long ago a run has to have ended: until then Temporal's list of
	// workflows may lag behind. 0 is the constant settled.
	Settled time.Duration
	// retryAfter is when a run is tried again that could not be archived.
	retryAfter map[string]time.Time
}

const (
	every   = 30 * time.Second
	settled = time.Minute
	// maxRuns bounds how many runs a round archives.
	maxRuns = 4
	// pause is how long a run waits that could not be archived.
	pause = 10 * time.Minute
	// parts is how many archives a run gets while Temporal keeps a history: each has to be
	// made before a history goes that has closed since the one before.
	parts = 3
)

// errUnsettled means that a run can't be archived yet.
var errUnsettled = errors.New("not yet")

// Run archives until ctx ends. If Temporal, the store or the disk fails, it logs that and
// tries again later.
func (a *Archiver) Run(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(a.Every, every))
	defer tick.Stop()
	for {
		if err := a.Step(ctx); err != nil && ctx.Err() == nil {
			a.Log.Warn("archive histories", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Step archives a few runs.
func (a *Archiver) Step(ctx context.Context) error {
	retention, err := a.Retention(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	runs, err := a.Store.UnarchivedRuns(ctx, now.Add(-cmp.Or(a.Settled, settled)), now.Add(-retention/parts))
	if err != nil {
		return err
	}
	if a.retryAfter == nil {
		a.retryAfter = map[string]time.Time{}
	}
	// Several processes begin with different runs.
	rand.Shuffle(len(runs), func(i, k int) { runs[i], runs[k] = runs[k], runs[i] })
	var all []error
	for n, i := 0, 0; i < len(runs) && n < maxRuns && ctx.Err() == nil; i++ {
		run := runs[i]
		if now.Before(a.retryAfter[run.Name]) {
			continue
		}
		n++
		err := a.archive(ctx, run, retention/parts)
		switch {
		case err == nil:
			delete(a.retryAfter, run.Name)
		case errors.Is(err, record.ErrConflict), errors.Is(err, record.ErrForgotten):
			// Another process was faster, or somebody has changed the run: the next round sees it.
		case errors.Is(err, errUnsettled):
			a.retryAfter[run.Name] = now.Add(cmp.Or(a.Settled, settled))
		default:
			a.retryAfter[run.Name] = now.Add(pause)
			all = append(all, fmt.Errorf("archive the histories of run %s: %w; it is tried again in %s", run.Name, err, pause))
		}
	}
	return errors.Join(all...)
}

// archive archives one run. patience is how long after its end it waits for workflows below it.
func (a *Archiver) archive(ctx context.Context, run record.Run, patience time.Duration) error {
	removed, err := a.Store.RemovedTasks(ctx, run.Name) // before the histories are read
	if err != nil {
		return err
	}
	before, err := a.Store.Archive(ctx, run.Name)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return err
	}
	var earlier *Reader
	if before.Digest != "" {
		earlier, err = Open(ctx, a.Blobs, before)
		switch {
		case errors.Is(err, record.ErrNotFound): // what Temporal still has is more than nothing
			a.Log.Warn("the file of an archive is gone: the run is archived without what only that had", zap.String("run", run.Name), zap.Error(err))
		case err != nil: // another try may read it, and it would be removed
			return err
		default:
			defer func() { _ = earlier.Close() }() // only read
		}
	}
	if run.Status != record.Running {
		if err := a.settled(ctx, run, patience); err != nil {
			return err
		}
	}
	next := record.Archive{Run: run.Name, Finished: run.Finished}
	if err := a.store(ctx, run, earlier, &next); err != nil {
		return err
	}
	if err := a.Store.PutArchive(ctx, next, before, removed); err != nil {
		if next.Digest != "" {
			err = errors.Join(err, a.drop(ctx, run.Name, next.Digest))
		}
		return err
	}
	if next.Digest == "" && run.Status != record.Running {
		a.Log.Info("a run has no archive, because Temporal has deleted its histories", zap.String("run", run.Name))
	}
	if next.Digest != "" {
		a.Log.Info("histories archived", zap.String("run", run.Name), zap.Int("histories", next.Histories), zap.Int64("events", next.Events), zap.String("size", readable.Bytes(next.Bytes)))
	}
	if before.Digest != "" && before.Digest != next.Digest {
		return a.drop(ctx, run.Name, before.Digest)
	}
	return nil
}

// settled returns errUnsettled while Temporal has a run that has ended and its list of
// workflows does not show it as closed, or shows workflows below it that have not closed.
// Those are left out of the archive if they have not closed when patience ends.
func (a *Archiver) settled(ctx context.Context, run record.Run, patience time.Duration) error {
	d, err := a.Client.DescribeWorkflowExecution(ctx, run.WorkflowID, "")
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("describe workflow %s: %w", run.WorkflowID, err)
	}
	listed, err := a.executions(ctx, run)
	if err != nil {
		return err
	}
	found := false
	for _, e := range listed {
		if e.CloseTime == nil && time.Since(run.Finished) < patience {
			return fmt.Errorf("%w: workflow %s has not closed", errUnsettled, e.Execution.WorkflowId)
		}
		found = found || e.Execution.RunId == d.WorkflowExecutionInfo.Execution.RunId
	}
	if !found {
		return fmt.Errorf("%w: Temporal does not list the run", errUnsettled)
	}
	return nil
}

// store stores the blob of an archive and completes its record. Without any history there is
// no blob.
func (a *Archiver) store(ctx context.Context, run record.Run, earlier *Reader, next *record.Archive) error {
	content, to := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type written struct {
		manifest Manifest
		size     int64
		err      error
	}
	done := make(chan written, 1)
	go func() {
		counted := &counter{Writer: to}
		files := zip.NewWriter(counted)
		m, err := a.Write(ctx, run, earlier, true, files)
		if err == nil && len(m.Histories) == 0 {
			err = errGone
		}
		if err == nil {
			err = files.Close()
		}
		_ = to.CloseWithError(err) // it returns nil
		done <- written{m, counted.size, err}
	}()
	digest, err := a.Blobs.PutNoted(ctx, content, func(digest string) error { return a.Store.NoteArchive(ctx, run.Name, digest) })
	_ = content.CloseWithError(err) // ends the writer if the disk is full; it returns nil
	cancel()
	w := <-done
	switch {
	case errors.Is(w.err, errGone) && len(w.manifest.Histories) == 0:
		return nil
	case err != nil:
		return err
	case w.err != nil:
		return w.err
	}
	next.Digest, next.Bytes, next.Histories = digest, w.size, len(w.manifest.Histories)
	for _, h := range w.manifest.Histories {
		next.Events += h.Events
	}
	return nil
}

// drop removes a file that is not on record as the archive of any run.
func (a *Archiver) drop(ctx context.Context, run, digest string) error {
	return a.Store.DropArchive(ctx, run, digest, func() error { return a.Blobs.Remove(ctx, digest) })
}

// counter counts what is written.
type counter struct {
	io.Writer
	size int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.size += int64(n)
	return n, err
}
