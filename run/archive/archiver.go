package archive

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	PutArchive(ctx context.Context, a, before record.Archive, removedTasks int, publish func() error) error
	DropArchive(ctx context.Context, run, digest string, remove func() error) error
	AcquireFreeLease(ctx context.Context, l record.Lease, ttl time.Duration) (record.Lease, error)
	RenewLease(ctx context.Context, l record.Lease, ttl time.Duration) error
	ReleaseLease(ctx context.Context, l record.Lease) error
}

// BlobWriter also stores and removes blobs.
type BlobWriter interface {
	Blobs
	PutRecorded(ctx context.Context, r io.Reader, record func(digest string, publish func() error) error) (string, error)
	Remove(ctx context.Context, digest string) error
}

// Archiver archives the histories of runs that have ended, and of long runs in between. Any
// number of processes may do so at once: a lease gives a run to one of them, and should one work
// on after it has lost its lease, the first archive counts.
type Archiver struct {
	Temporal
	Store Store
	Blobs BlobWriter
	Log   *zap.Logger
	Every time.Duration // between two rounds; 0 is the constant every
	// Settled is how long ago a run has to have ended: until then Temporal's list of
	// workflows may lag behind. 0 is the constant settled.
	Settled time.Duration
	// Lease is how long after the death of an archiver others leave its run alone; 0 is the
	// constant leaseTime.
	Lease time.Duration
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

// Step archives a few runs, those that ended first before others.
func (a *Archiver) Step(ctx context.Context) error {
	retention, err := a.Retention(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	due := due{ended: now.Add(-cmp.Or(a.Settled, settled)), archived: now.Add(-retention / parts), patience: retention / parts}
	runs, err := a.Store.UnarchivedRuns(ctx, due.ended, due.archived)
	if err != nil {
		return err
	}
	if a.retryAfter == nil {
		a.retryAfter = map[string]time.Time{}
	}
	var all []error
	for n, i := 0, 0; i < len(runs) && n < maxRuns && ctx.Err() == nil; i++ {
		run := runs[i]
		if now.Before(a.retryAfter[run.Name]) {
			continue
		}
		err := a.whileLeased(ctx, run.Name, func(ctx context.Context) error { return a.archive(ctx, run, due) })
		if errors.Is(err, record.ErrLeaseHeld) {
			continue // another process archives it
		}
		n++
		switch {
		case err == nil:
			delete(a.retryAfter, run.Name)
		case errors.Is(err, record.ErrConflict), errors.Is(err, record.ErrForgotten), errors.Is(err, record.ErrLeaseLost):
			// Somebody has changed the run, or this process was away for too long: the next round
			// sees what is left to do.
		case errors.Is(err, errUnsettled):
			a.retryAfter[run.Name] = now.Add(cmp.Or(a.Settled, settled))
		default:
			a.retryAfter[run.Name] = now.Add(pause)
			all = append(all, fmt.Errorf("archive the histories of run %s: %w; it is tried again in %s", run.Name, err, pause))
		}
	}
	return errors.Join(all...)
}

// due says which runs have to be archived.
type due struct {
	ended    time.Time // those that ended before this and were not archived since
	archived time.Time // those under way that were not archived since this
	// patience is how long after its end a run waits for workflows below it.
	patience time.Duration
}

// stands reports whether an archive of a run is one that the run needs no other for.
func (d due) stands(a record.Archive, run record.Run) bool {
	return a.Run != "" && a.Finished.Equal(run.Finished) && (run.Status != record.Running || a.Archived.After(d.archived))
}

// archive archives one run. Nobody else does meanwhile.
func (a *Archiver) archive(ctx context.Context, run record.Run, due due) error {
	removed, err := a.Store.RemovedTasks(ctx, run.Name) // before the histories are read
	if err != nil {
		return err
	}
	before, err := a.Store.Archive(ctx, run.Name)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return err
	}
	if due.stands(before, run) { // another process has made it since the runs were listed
		return nil
	}
	wanted := selection{run: run, closed: true, gaps: gapsOf(removed)}
	if before.Digest != "" {
		wanted.before, err = Open(ctx, a.Blobs, before)
		switch {
		case errors.Is(err, record.ErrNotFound): // what Temporal still has is more than nothing
			a.Log.Warn("the file of an archive is gone: the run is archived without what only that had", zap.String("run", run.Name), zap.Error(err))
			wanted.before, wanted.gaps = nil, append(wanted.gaps, GapArchive)
		case err != nil: // another try may read it, and it would be removed
			return err
		default:
			defer func() { _ = wanted.before.Close() }() // only read
		}
	}
	if run.Status != record.Running {
		wanted.settled = run.Finished.Add(due.patience)
		if err := a.settled(ctx, run, due.patience); err != nil {
			return err
		}
	}
	// What closes from now on may be missing, and the next archive counts from here.
	next := record.Archive{Run: run.Name, Finished: run.Finished, Archived: time.Now()}
	if err := a.put(ctx, wanted, &next, before, removed); err != nil {
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

// gapsOf returns the gaps of a run from which a number of tasks was removed.
func gapsOf(removedTasks int) []Gap {
	if removedTasks == 0 {
		return nil
	}
	return []Gap{GapTask}
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

// put stores an archive and puts it on record in place of the one before. Without any history
// there is no file. The file is noted before it has a name, and gets its name in the transaction
// that puts it on record. next has the digest as soon as it is noted.
func (a *Archiver) put(ctx context.Context, wanted selection, next *record.Archive, before record.Archive, removed int) error {
	content, to := io.Pipe()
	writing, cancelWriter := context.WithCancel(ctx)
	defer cancelWriter()
	var manifest Manifest
	counted, written := &counter{Writer: to}, make(chan struct{})
	go func() {
		defer close(written)
		files := zip.NewWriter(counted)
		m, err := a.write(writing, wanted, files)
		if err == nil && len(m.Histories) == 0 {
			err = ErrNone
		}
		if err == nil {
			err = files.Close()
		}
		manifest = m
		_ = to.CloseWithError(err) // it returns nil
	}()
	_, err := a.Blobs.PutRecorded(ctx, content, func(digest string, publish func() error) error {
		<-written
		next.Bytes, next.Histories = counted.size, len(manifest.Histories)
		for _, h := range manifest.Histories {
			next.Events += h.Events
		}
		if err := a.Store.NoteArchive(ctx, next.Run, digest); err != nil {
			return err
		}
		next.Digest = digest
		return a.Store.PutArchive(ctx, *next, before, removed, publish)
	})
	_ = content.CloseWithError(err) // ends the writer if the disk is full; it returns nil
	cancelWriter()
	<-written
	if errors.Is(err, ErrNone) {
		return a.Store.PutArchive(ctx, *next, before, removed, nil)
	}
	return err
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
