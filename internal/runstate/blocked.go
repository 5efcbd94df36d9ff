package runstate

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

const (
	// blockedAfter is the attempt from which on an activity counts as blocked. The first
	// attempts also fail when a worker merely goes away.
	blockedAfter = 3
	// lookedInto bounds how many children of a run, and how many running runs, are asked.
	lookedInto = 64
)

// Blockage is an activity that is tried again and again.
type Blockage struct {
	Workflow string `json:"workflow"`
	Activity string `json:"activity"`
	Attempt  int    `json:"attempt"`
	Failure  string `json:"failure,omitempty"`
}

func (b Blockage) String() string {
	return fmt.Sprintf("%s of %s is blocked, attempt %d: %s", b.Activity, b.Workflow, b.Attempt, b.Failure)
}

// Blockages lists the blocked activities of a workflow and of its children.
func Blockages(ctx context.Context, c client.Client, id string) ([]Blockage, error) {
	out, children, err := blockagesOf(ctx, c, id)
	if err != nil {
		return nil, err
	}
	for _, child := range children[:min(len(children), lookedInto)] {
		more, _, err := blockagesOf(ctx, c, child)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// add appends a blockage. Samples of a task that are blocked by one failure count once, at
// the attempt of the one that was tried most often.
func add(all []Blockage, b Blockage) []Blockage {
	for i, other := range all {
		if other.Workflow == b.Workflow && other.Activity == b.Activity && other.Failure == b.Failure {
			all[i].Attempt = max(other.Attempt, b.Attempt)
			return all
		}
	}
	return append(all, b)
}

func blockagesOf(ctx context.Context, c client.Client, id string) (out []Blockage, children []string, err error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	for _, a := range d.PendingActivities {
		if a.Attempt < blockedAfter {
			continue
		}
		out = add(out, Blockage{
			Workflow: id, Activity: a.ActivityType.GetName(), Attempt: int(a.Attempt), Failure: a.LastFailure.GetMessage(),
		})
	}
	for _, child := range d.PendingChildren {
		children = append(children, child.WorkflowId)
	}
	return out, children, nil
}
