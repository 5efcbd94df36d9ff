package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
)

// Files takes the files of an archive, one after the other. A *zip.Writer is one.
type Files interface {
	Create(name string) (io.Writer, error)
}

// Temporal is the server that has the histories.
type Temporal struct {
	Client    client.Client
	Namespace string
}

// errGone means that Temporal has deleted an execution.
var errGone = errors.New("Temporal has deleted it")

// Retention returns how long Temporal keeps the histories of closed workflows.
func (t Temporal) Retention(ctx context.Context) (time.Duration, error) {
	d, err := t.Client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: t.Namespace})
	if err != nil {
		return 0, fmt.Errorf("describe namespace %s: %w", t.Namespace, err)
	}
	return d.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), nil
}

func (t Temporal) executions(ctx context.Context, run record.Run) ([]*workflow.WorkflowExecutionInfo, error) {
	return runstate.Histories(t).Executions(ctx, run)
}

// selection says which histories are written.
type selection struct {
	run record.Run
	// before is an archive of the run, nil if there is none. Its histories are taken from there.
	before *Reader
	// closed leaves out the workflows that have not closed.
	closed bool
	// settled is when a workflow is left out that has not closed by then. Before, it is an error.
	settled time.Time
	// gaps are known reasons why histories are missing.
	gaps []Gap
}

// writer writes the histories of a selection.
type writer struct {
	Temporal
	selection
	to       Files
	manifest Manifest
	// done has the executions that were written, or are known to be missing, by their ids in
	// Temporal. named has those that a written history names.
	done  map[string]bool
	named map[string]Execution
}

// write writes the histories of a run to files, the manifest last. Without any history it
// writes no manifest.
//
// Temporal's list of workflows lags behind, and a person may have deleted histories. So each
// execution that a history names, as its parent, child, predecessor or successor, is looked for.
func (t Temporal) write(ctx context.Context, s selection, to Files) (Manifest, error) {
	w := &writer{Temporal: t, selection: s, to: to, done: map[string]bool{}, named: map[string]Execution{}}
	w.manifest = Manifest{Format: format, Run: s.run.Name, Status: s.run.Status, Histories: []History{}, Gaps: slices.Clone(s.gaps)}
	if err := w.checkRetention(ctx); err != nil {
		return w.manifest, err
	}
	if err := w.addListed(ctx); err != nil {
		return w.manifest, err
	}
	if err := w.nameLatest(ctx); err != nil {
		return w.manifest, err
	}
	if err := w.addNamed(ctx); err != nil {
		return w.manifest, err
	}
	w.finish()
	if len(w.manifest.Histories) == 0 {
		return w.manifest, nil
	}
	return w.manifest, writeManifest(w.manifest, to)
}

// checkRetention adds a gap if Temporal may have deleted histories by itself. What the archive
// before has is no longer needed from there, but what that lacks for good, this one lacks, too.
func (w *writer) checkRetention(ctx context.Context) error {
	since := w.run.Created
	if w.before != nil {
		since = w.before.Archived
		for _, gap := range w.before.Manifest.Gaps {
			if gap != GapOpen && gap != GapDeleted { // these are looked for again
				w.gap(gap)
			}
		}
		for _, one := range w.before.Manifest.Missing {
			w.named[one.RunID] = one.Execution
		}
	}
	retention, err := w.Retention(ctx)
	if err == nil && time.Since(since) >= retention {
		w.gap(GapRetention)
	}
	return err
}

// gap adds a reason once.
func (w *writer) gap(g Gap) {
	if !slices.Contains(w.manifest.Gaps, g) {
		w.manifest.Gaps = append(w.manifest.Gaps, g)
	}
}

// addListed writes the histories of the archive before, and of what Temporal lists, in the
// order in which the workflows started.
func (w *writer) addListed(ctx context.Context) error {
	listed, err := w.executions(ctx, w.run)
	if err != nil {
		return err
	}
	var all []History
	kept := map[string]bool{}
	if w.before != nil {
		all = slices.Clone(w.before.Manifest.Histories)
		for _, h := range all {
			kept[h.RunID] = true
		}
	}
	for _, e := range listed {
		if !kept[e.Execution.RunId] {
			all = append(all, described(e))
		}
	}
	slices.SortFunc(all, inOrder)
	for _, h := range all {
		switch {
		case w.done[h.RunID]: // a page of the list may repeat what another had
		case kept[h.RunID]:
			err = w.keep(h)
		default:
			err = w.add(ctx, h)
		}
		if err != nil {
			return ofWorkflow(h.Execution, err)
		}
	}
	return nil
}

// nameLatest names the latest execution of the run's own workflow, which Temporal does not list
// in the first moments of a run.
func (w *writer) nameLatest(ctx context.Context) error {
	latest, err := w.describe(ctx, Execution{WorkflowID: w.run.WorkflowID})
	switch {
	case errors.Is(err, errGone):
		return nil
	case err != nil:
		return ofWorkflow(latest.Execution, err)
	}
	w.named[latest.RunID] = latest.Execution
	return nil
}

// addNamed writes the histories that were not listed, and that others name, until there are no
// more of them.
func (w *writer) addNamed(ctx context.Context) error {
	for {
		var unknown []Execution
		for id, one := range w.named {
			if !w.done[id] {
				unknown = append(unknown, one)
			}
		}
		if len(unknown) == 0 {
			return nil
		}
		slices.SortFunc(unknown, Execution.compare)
		for _, one := range unknown {
			if err := w.add(ctx, History{Execution: one}); err != nil {
				return ofWorkflow(one, err)
			}
		}
	}
}

// keep copies a history of the archive before.
func (w *writer) keep(h History) error {
	w.done[h.RunID] = true
	w.manifest.Histories = append(w.manifest.Histories, h)
	return w.before.copyTo(h.File, w.to)
}

// add writes a history of Temporal's, unless it is to be left out or is gone.
func (w *writer) add(ctx context.Context, h History) (err error) {
	if h.Closed == nil { // it may have closed since it was listed so
		h, err = w.describe(ctx, h.Execution)
	}
	switch {
	case errors.Is(err, errGone):
		w.miss(h.Execution, false)
		return nil
	case err != nil:
		return err
	case w.closed && h.Closed == nil && time.Now().Before(w.settled):
		return errUnsettled
	case w.closed && h.Closed == nil:
		w.miss(h.Execution, true)
		return nil
	}
	h.Events, err = w.history(ctx, h)
	switch {
	case errors.Is(err, errGone):
		w.miss(h.Execution, false)
		return nil
	case err != nil:
		return err
	}
	w.done[h.RunID] = true
	w.manifest.Histories = append(w.manifest.Histories, h)
	return nil
}

// describe asks Temporal for an execution itself, which its list may not have yet. If it is gone,
// the error is errGone.
func (w *writer) describe(ctx context.Context, e Execution) (History, error) {
	d, err := w.Client.DescribeWorkflowExecution(ctx, e.WorkflowID, e.RunID)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		err = errGone
	}
	if err != nil {
		return History{Execution: e}, err
	}
	return described(d.WorkflowExecutionInfo), nil
}

// miss notes that an execution is left out. A run under way has executions that have not closed:
// the next archive has them, so that is no gap.
func (w *writer) miss(one Execution, open bool) {
	w.done[one.RunID] = true
	w.manifest.Missing = append(w.manifest.Missing, Missing{one, open})
	switch {
	case !open:
		w.gap(GapDeleted)
	case w.run.Status != record.Running:
		w.gap(GapOpen)
	}
}

// finish orders what the manifest lists, and says whether all of it is there.
func (w *writer) finish() {
	m := &w.manifest
	slices.SortFunc(m.Histories, inOrder)
	slices.SortFunc(m.Missing, func(a, b Missing) int { return a.compare(b.Execution) })
	slices.Sort(m.Gaps)
	m.Complete = len(m.Gaps) == 0
}

func ofWorkflow(e Execution, err error) error {
	return fmt.Errorf("read the history of workflow %s (%s): %w", e.WorkflowID, e.RunID, err)
}

func inOrder(a, b History) int {
	return cmp.Or(a.Started.Compare(b.Started), a.compare(b.Execution))
}

func (e Execution) compare(other Execution) int {
	return cmp.Or(strings.Compare(e.WorkflowID, other.WorkflowID), strings.Compare(e.RunID, other.RunID))
}

func described(e *workflow.WorkflowExecutionInfo) History {
	h := History{
		File: fileName(e.Execution.WorkflowId, e.Execution.RunId), Execution: Execution{e.Execution.WorkflowId, e.Execution.RunId},
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

// history writes one history, event by event, and returns how many events it has.
func (w *writer) history(ctx context.Context, h History) (events int64, err error) {
	var to io.Writer
	it := w.Client.GetWorkflowHistory(ctx, h.WorkflowID, h.RunID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		event, err := it.Next()
		var gone *serviceerror.NotFound
		if to == nil && errors.As(err, &gone) {
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
		if to == nil {
			before = `{"events":[`
			if to, err = w.to.Create(h.File); err != nil {
				return events, err
			}
		}
		if _, err := to.Write(append([]byte(before), text...)); err != nil {
			return events, err
		}
		for _, one := range namedBy(h.Execution, event, h.WorkflowID == w.run.WorkflowID) {
			w.named[one.RunID] = one
		}
		events++
	}
	if to == nil {
		return 0, errGone
	}
	_, err = io.WriteString(to, "]}\n")
	return events, err
}

// namedBy returns the executions that an event in the history of an execution names: its parent
// and children, and those that it continues, or that continue it. own says that the execution is
// one of the run's own workflow, whose parent, if there is one, does not belong to the run.
func namedBy(of Execution, event *history.HistoryEvent, own bool) (out []Execution) {
	same := func(runIDs ...string) {
		for _, id := range runIDs {
			if id != "" {
				out = append(out, Execution{of.WorkflowID, id})
			}
		}
	}
	if a := event.GetWorkflowExecutionStartedEventAttributes(); a != nil {
		same(a.ContinuedExecutionRunId, a.OriginalExecutionRunId, a.FirstExecutionRunId)
		if parent := a.ParentWorkflowExecution; parent != nil && !own {
			out = append(out, Execution{parent.WorkflowId, parent.RunId})
		}
	}
	if child := event.GetChildWorkflowExecutionStartedEventAttributes().GetWorkflowExecution(); child != nil {
		out = append(out, Execution{child.WorkflowId, child.RunId})
	}
	same(event.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId(),
		event.GetWorkflowExecutionCompletedEventAttributes().GetNewExecutionRunId(),
		event.GetWorkflowExecutionFailedEventAttributes().GetNewExecutionRunId(),
		event.GetWorkflowExecutionTimedOutEventAttributes().GetNewExecutionRunId(),
		event.GetWorkflowTaskFailedEventAttributes().GetBaseRunId(), // of a reset
		event.GetWorkflowTaskFailedEventAttributes().GetNewRunId())
	return out
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
