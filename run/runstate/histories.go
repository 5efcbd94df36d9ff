package runstate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Histories lists the histories of runs, and deletes those of runs that have ended.
type Histories struct {
	Client    client.Client
	Namespace string
}

// Temporal deletes at once what closed more than half a minute ago. What closed later waits
// until the server has noted, every half minute, how far its queues are.
const (
	deletionPoll = 200 * time.Millisecond
	deletionWait = 3 * time.Minute
	// listTries is how often a busy server is asked for a page of its list, each time for as
	// long as the client waits, which is 10 seconds.
	listTries = 6
)

// Open returns the id of a workflow of the run that is under way: its own, one below it, or the
// PhasesWorkflow of which the run is a phase, because later phases read it. It is empty if
// there is none.
func (h Histories) Open(ctx context.Context, run record.Run) (id string, err error) {
	now, err := Of(ctx, h.Client, run)
	if err != nil {
		return "", err
	}
	if now.Status == record.Running {
		return run.WorkflowID, nil
	}
	all, err := h.list(ctx, run)
	if err != nil {
		return "", err
	}
	for _, e := range all {
		d, err := h.Client.DescribeWorkflowExecution(ctx, e.WorkflowId, e.RunId)
		var gone *serviceerror.NotFound
		switch {
		case errors.As(err, &gone):
		case err != nil:
			return "", fmt.Errorf("describe workflow %s: %w", e.WorkflowId, err)
		case underWay(d.WorkflowExecutionInfo.Status):
			return e.WorkflowId, nil
		}
	}
	return h.openPhases(ctx, run.Name)
}

// phaseName is the form of the names of phases' runs, as spec.PhaseName makes them.
var phaseName = regexp.MustCompile(`^(.+)-[1-9][0-9]*-(?:` + spec.PhasePrompts + `|` + spec.PhaseWeights + `)$`)

// openPhases returns the id of the PhasesWorkflow of which a run is a phase, if it is under
// way, or "".
func (h Histories) openPhases(ctx context.Context, run string) (id string, err error) {
	parts := phaseName.FindStringSubmatch(run)
	if parts == nil {
		return "", nil
	}
	d, err := h.Client.DescribeWorkflowExecution(ctx, parts[1], "")
	var unknown *serviceerror.NotFound
	switch {
	case errors.As(err, &unknown):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("ask Temporal about phases %s: %w", parts[1], err)
	case d.WorkflowExecutionInfo.GetType().GetName() == workflows.TypePhases && underWay(d.WorkflowExecutionInfo.Status):
		return parts[1], nil
	}
	return "", nil
}

// Count returns how many executions belong to a run: its own, and those below it.
func (h Histories) Count(ctx context.Context, run record.Run) (int, error) {
	all, err := h.list(ctx, run)
	return len(all), err
}

// Delete deletes the executions of a run whose workflow ids select chooses, with their
// histories, and returns how many it asked Temporal to delete. It waits until Temporal
// lists none of them any more, at most three minutes. If it is interrupted, the next call
// continues.
func (h Histories) Delete(ctx context.Context, run record.Run, chosen func(id string) bool) (int, error) {
	asked := map[string]bool{}
	limit := time.NewTimer(deletionWait)
	defer limit.Stop()
	for {
		all, err := h.list(ctx, run)
		if err != nil {
			return len(asked), err
		}
		all = slices.DeleteFunc(all, func(e *common.WorkflowExecution) bool { return !chosen(e.WorkflowId) })
		if len(all) == 0 {
			return len(asked), nil
		}
		for _, e := range all {
			if asked[e.RunId] {
				continue
			}
			_, err := h.Client.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{Namespace: h.Namespace, WorkflowExecution: e})
			var gone *serviceerror.NotFound
			if err != nil && !errors.As(err, &gone) {
				return len(asked), fmt.Errorf("delete workflow %s (%s): %w", e.WorkflowId, e.RunId, err)
			}
			asked[e.RunId] = true
		}
		pause := time.NewTimer(deletionPoll)
		select {
		case <-ctx.Done():
			pause.Stop()
			return len(asked), ctx.Err()
		case <-limit.C:
			pause.Stop()
			return len(asked), fmt.Errorf("Temporal still lists %d workflows of run %s that it was told to delete: try again", len(all), run.Name) //nolint:staticcheck // a name
		case <-pause.C:
		}
	}
}

// Containing returns the ids of the run's workflows whose histories have one of the texts,
// as they are or as JSON writes them.
func (h Histories) Containing(ctx context.Context, run record.Run, texts []string) ([]string, error) {
	var wanted [][]byte
	for _, text := range texts {
		wanted = append(wanted, []byte(text))
		if quoted, err := json.Marshal(text); err == nil && string(quoted[1:len(quoted)-1]) != text {
			wanted = append(wanted, quoted[1:len(quoted)-1])
		}
	}
	all, err := h.list(ctx, run)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range all {
		has, err := h.contains(ctx, e, wanted)
		if err != nil {
			return nil, fmt.Errorf("read the history of workflow %s: %w", e.WorkflowId, err)
		}
		if has && !slices.Contains(out, e.WorkflowId) {
			out = append(out, e.WorkflowId)
		}
	}
	return out, nil
}

func (h Histories) contains(ctx context.Context, e *common.WorkflowExecution, texts [][]byte) (bool, error) {
	it := h.Client.GetWorkflowHistory(ctx, e.WorkflowId, e.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		event, err := it.Next()
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		data, err := proto.Marshal(event)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Contains(data, text) }) {
			return true, nil
		}
	}
	return false, nil
}

// isLate reports whether the server did not answer in the client's time, as a busy one may.
func isLate(err error) bool {
	var late *serviceerror.DeadlineExceeded
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late)
}

func (h Histories) list(ctx context.Context, run record.Run) (all []*common.WorkflowExecution, err error) {
	infos, err := h.Executions(ctx, run)
	for _, e := range infos {
		all = append(all, e.Execution)
	}
	return all, err
}

// Executions returns the executions of a run that Temporal lists, those before a reset or a
// continuation too, and all that are below it. The list lags a little behind.
func (h Histories) Executions(ctx context.Context, run record.Run) (all []*workflow.WorkflowExecutionInfo, err error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: h.Namespace, PageSize: 1000, Query: fmt.Sprintf("RootWorkflowId = '%s'", run.WorkflowID)}
	for {
		page, err := h.Client.ListWorkflow(ctx, request)
		for try := 1; isLate(err) && ctx.Err() == nil && try < listTries; try++ {
			page, err = h.Client.ListWorkflow(ctx, request)
		}
		if err != nil {
			return nil, fmt.Errorf("list the workflows of run %s: %w", run.Name, err)
		}
		all = append(all, page.Executions...)
		if request.NextPageToken = page.NextPageToken; len(page.NextPageToken) == 0 {
			return all, nil
		}
	}
}
