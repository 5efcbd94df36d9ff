package pageserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Queues implements page.Fleet.
func (l *live) Queues(ctx context.Context) ([]page.Queue, error) {
	c, err := l.reach(ctx)
	if err != nil {
		return nil, err
	}
	names, err := l.queueNames(ctx)
	if err != nil {
		return nil, err
	}
	var all []page.Queue
	for _, name := range names {
		kinds := []enums.TaskQueueType{enums.TASK_QUEUE_TYPE_ACTIVITY}
		if name == workflows.QueueTraining {
			kinds = append(kinds, enums.TASK_QUEUE_TYPE_WORKFLOW)
		}
		for _, kind := range kinds {
			q, err := describe(ctx, c, name, kind)
			if err != nil {
				return nil, fmt.Errorf("describe queue %s: %w", name, err)
			}
			all = append(all, q)
		}
	}
	return all, nil
}

func describe(ctx context.Context, c Connection, name string, kind enums.TaskQueueType) (page.Queue, error) {
	d, err := c.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: c.Namespace, TaskQueue: &taskqueue.TaskQueue{Name: name}, TaskQueueType: kind, ReportStats: true,
	})
	if err != nil {
		return page.Queue{}, err
	}
	q := page.Queue{Name: name, Kind: "activities", Backlog: -1}
	if kind == enums.TASK_QUEUE_TYPE_WORKFLOW {
		q.Kind = "workflows"
	}
	if d.Stats != nil {
		q.Backlog = d.Stats.ApproximateBacklogCount
	}
	for _, p := range d.Pollers {
		q.Pollers = append(q.Pollers, page.Poller{Identity: p.Identity, Last: p.LastAccessTime.AsTime()})
	}
	return q, nil
}

// queueNames returns the default queues, and the queues that the specs of the runs under
// way name.
func (l *live) queueNames(ctx context.Context) ([]string, error) {
	names := []string{workflows.QueueTraining, workflows.QueueRollout, workflows.QueueTrainGPU}
	runs, err := l.records.Store.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		if run.Status != record.Running {
			continue
		}
		sp, err := spec.Stored(run.Spec)
		if err != nil {
			continue // a spec that can't be read names no queue to poll
		}
		if queue := sp.Agent.Queue; queue != "" && !slices.Contains(names, queue) {
			names = append(names, queue)
		}
	}
	return names, nil
}

// Gateway implements page.Fleet. It returns the gateway of the page's own stack, or else
// the one that holds the lease.
func (l *live) Gateway(ctx context.Context) (string, error) {
	if l.gateway != nil {
		if at := l.gateway(); at != "" {
			return at, nil
		}
	}
	leases, err := l.records.Store.Leases(ctx, record.Gateway)
	if err != nil {
		return "", err
	}
	if len(leases) == 0 {
		return "", errors.New("no stack runs here, and the page starts none: start it with `fulgurite dev`")
	}
	return leases[0].URL + "/v1", nil
}

// Here implements page.Fleet.
func (l *live) Here() ([]model.VersionID, bool) {
	if l.loaded == nil {
		return nil, false
	}
	return l.loaded(), true
}

// Loaded implements page.Fleet.
func (l *live) Loaded(ctx context.Context, sampler record.Lease) ([]model.VersionID, error) {
	return remote.Loaded(ctx, sampler.URL)
}
