package runstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

const (
	// blockedAfter is the attempt from which on an activity counts as blocked. The first
	// attempts also fail when a worker merely goes away.
	blockedAfter = 3
	// lookedInto bounds how many workflows below a run, and how many running runs, are
	// asked.
	lookedInto = 64
)

// Blockage is an activity, or a workflow task, that is tried again and again.
type Blockage struct {
	Workflow string `json:"workflow"`
	Activity string `json:"activity"`
	Attempt  int    `json:"attempt"`
	Failure  string `json:"failure,omitempty"`
	// Others counts further activities that the same failure blocks, of this workflow and
	// of others of the run.
	Others int `json:"others,omitempty"`
}

func (b Blockage) String() string {
	text := fmt.Sprintf("%s of %s is blocked, attempt %d: %s", b.Activity, b.Workflow, b.Attempt, b.Failure)
	if b.Others > 0 {
		text += fmt.Sprintf(" (and %d more are)", b.Others)
	}
	return text
}

// Key tells blockages apart. Numbers in a failure, such as addresses of attempts, ports and
// process ids, differ from try to try and from sample to sample, and make no other
// blockage.
func (b Blockage) Key() string {
	return b.Activity + " " + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, b.Failure)
}

// Blockages lists what is blocked in a workflow and in those below it.
func Blockages(ctx context.Context, c client.Client, id string) ([]Blockage, error) {
	found, err := lookInto(ctx, c, id)
	return found.blocked, err
}

// inside has what a workflow and those below it are doing.
type inside struct {
	blocked []Blockage
	// started are the types of activities that a worker has taken.
	started map[string]bool
}

// lookInto asks Temporal about a workflow, its children, and theirs: an agent can be a
// workflow with activities of its own.
func lookInto(ctx context.Context, c client.Client, id string) (inside, error) {
	out := inside{started: map[string]bool{}}
	ids := []string{id}
	for n := 0; n < len(ids) && n <= lookedInto; n++ {
		d, err := c.DescribeWorkflowExecution(ctx, ids[n], "")
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) {
			continue
		}
		if err != nil {
			return inside{}, fmt.Errorf("describe workflow %s: %w", ids[n], err)
		}
		for _, a := range d.PendingActivities {
			if a.State == enums.PENDING_ACTIVITY_STATE_STARTED {
				out.started[a.ActivityType.GetName()] = true
			}
			if a.Attempt >= blockedAfter {
				out.blocked = add(out.blocked, Blockage{
					Workflow: ids[n], Activity: a.ActivityType.GetName(), Attempt: int(a.Attempt), Failure: a.LastFailure.GetMessage(),
				})
			}
		}
		if attempt := d.PendingWorkflowTask.GetAttempt(); attempt >= blockedAfter {
			failure, err := taskFailure(ctx, c, d.WorkflowExecutionInfo.Execution)
			if err != nil {
				return inside{}, err
			}
			out.blocked = add(out.blocked, Blockage{Workflow: ids[n], Activity: "workflow task", Attempt: int(attempt), Failure: failure})
		}
		for _, child := range d.PendingChildren {
			ids = append(ids, child.WorkflowId)
		}
	}
	return out, nil
}

// taskFailure returns why a workflow's last failed workflow task failed. Temporal records
// only the first failure of a task that is tried again and again.
func taskFailure(ctx context.Context, c client.Client, of *common.WorkflowExecution) (string, error) {
	failure := "no worker has finished it"
	for it := c.GetWorkflowHistory(ctx, of.WorkflowId, of.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		if err != nil {
			return "", fmt.Errorf("read the history of workflow %s: %w", of.WorkflowId, err)
		}
		if failed := e.GetWorkflowTaskFailedEventAttributes(); failed != nil {
			failure = cmp.Or(failed.Failure.GetMessage(), failed.Cause.String())
		}
	}
	return failure, nil
}

// add appends a blockage. What is blocked by one failure counts once, at the attempt of the
// one that was tried most often.
func add(all []Blockage, b Blockage) []Blockage {
	for i, other := range all {
		if other.Key() == b.Key() {
			all[i].Attempt = max(other.Attempt, b.Attempt)
			all[i].Others++
			return all
		}
	}
	return append(all, b)
}
