package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/catalog"
	"github.com/fulgurite/fulgurite/internal/runstate"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

type statusCommand struct {
	Run_    string      `arg:"" name:"run" help:"Name of the run."`
	JSON    bool        `help:"Print JSON." name:"json"`
	Records recordFlags `embed:""`
}

// runStatus is what `fulgurite status` reports.
type runStatus struct {
	Run    string        `json:"run"`
	Status record.Status `json:"status"`
	// Error says why a run that ended did not complete.
	Error string `json:"error,omitempty"`
	// Progress is absent when Temporal can't be asked.
	Progress *workflows.Progress `json:"progress,omitempty"`
	// Idle lists the queues that no worker polls.
	Idle []string `json:"idle_queues,omitempty"`
	// Blocked is what is tried again and again, with the reason.
	Blocked []blockage `json:"blocked,omitempty"`
	Warning string     `json:"warning,omitempty"`
}

func (c *statusCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	out, err := s.status(ctx, t, c.Run_, c.Records)
	if err != nil {
		return err
	}
	if c.JSON {
		return t.json(out)
	}
	t.printf("Run %s: %s\n", out.Run, out.Status)
	if out.Error != "" {
		t.printf("  %s\n", out.Error)
	}
	if retriable(out.Status) {
		t.printf("  once the cause is mended: `fulgurite retry%s %s`\n", s.flag(), out.Run)
	}
	if p := out.Progress; p != nil {
		t.printf("  %s (%s), step %d of %d, version %d is promoted\n", p.Phase, p.Subject, p.Step, p.Steps, p.Promoted)
		if n := len(p.Curve); n > 0 {
			t.printf("  reward of step %d: %.3f\n", p.Curve[n-1].Step, p.Curve[n-1].Reward)
		}
		if p.Paused {
			t.printf("  paused: `fulgurite resume %s` goes on\n", out.Run)
		}
		if p.Pending != nil {
			t.printf("  version %d waits for `fulgurite approve %s` or `fulgurite reject %s`\n", p.Pending.Decision.Candidate, out.Run, out.Run)
		}
		if p.Quarantined > 0 {
			t.printf("  %d tasks are quarantined: `fulgurite report %s` says why\n", p.Quarantined, out.Run)
		}
		t.printf("  %d model calls, %d sampled tokens, %d rollouts whose agent failed\n", p.Calls, p.Tokens, p.Failed)
	}
	for _, q := range out.Idle {
		t.printf("  no worker polls queue %s: the run waits until one does\n", q)
	}
	for _, b := range out.Blocked {
		t.printf("  %s\n", b)
	}
	if out.Warning != "" {
		t.printf("  %s\n", out.Warning)
	}
	return nil
}

// status asks the store first, which answers always, and then Temporal.
func (s *shared) status(ctx context.Context, t *terminal, name string, r recordFlags) (runStatus, error) {
	db, blobs, err := s.openRecords(ctx, t, r)
	if err != nil {
		return runStatus{}, err
	}
	defer db.Close()
	run, err := db.Run(ctx, name)
	if errors.Is(err, trace.ErrNotFound) {
		if out, ok := s.unrecorded(ctx, t, name); ok {
			return out, nil
		}
	}
	if err != nil {
		return runStatus{}, fmt.Errorf("run %s: %w", name, err)
	}
	scarce, full := s.scarcity()
	if run.Status == record.Running && full {
		return runStatus{Run: name, Status: run.Status, Warning: scarce}, nil // Temporal can't write either, and does not answer
	}
	run, temporal, doubt := s.standing(ctx, t, run)
	if temporal != nil {
		defer temporal.Close()
	}
	out := runStatus{Run: name, Status: run.Status, Error: run.Failure().Error, Warning: doubt}
	if run.Status != record.Running || doubt != "" {
		return out, nil
	}
	out.Warning = scarce
	sp, err := catalog.Catalog{Store: db, Blobs: blobs}.Spec(ctx, name)
	if err != nil {
		return out, err
	}
	if out.Idle, err = idleQueues(ctx, temporal, sp.Agent.Queue); err != nil {
		return out, err
	}
	if out.Blocked, err = blockages(ctx, temporal, name); err != nil {
		return out, err
	}
	var p workflows.Progress
	if err := query(ctx, temporal, name, &p); err != nil {
		out.Warning = fmt.Sprintf("the run does not answer: %v", err)
		return out, nil
	}
	out.Progress = &p
	return out, nil
}

// unrecorded is the status of a run that Temporal knows and the store does not: one that
// has just started, that no worker has prepared yet, or that was refused before.
func (s *shared) unrecorded(ctx context.Context, t *terminal, name string) (runStatus, bool) {
	ctx, cancel := context.WithTimeout(ctx, standingWithin)
	defer cancel()
	c, err := s.dial(ctx, t)
	if err != nil {
		return runStatus{}, false
	}
	defer c.Close()
	run, err := unrecordedRun(ctx, c, name)
	if err != nil {
		return runStatus{}, false
	}
	out := runStatus{Run: name, Status: run.Status, Error: run.Failure().Error}
	if run.Status == record.Running {
		out.Warning = "it has started, and is not on record yet"
		out.Idle, _ = idleQueues(ctx, c, workflows.QueueRollout) // unknown is as good as none here
	}
	return out, true
}

// unrecordedRun is a run as its workflow alone tells it.
func unrecordedRun(ctx context.Context, c client.Client, name string) (record.Run, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return record.Run{}, fmt.Errorf("find run %s: %w", name, err)
	}
	if kind := d.WorkflowExecutionInfo.GetType().GetName(); kind != "TrainingWorkflow" {
		return record.Run{}, fmt.Errorf("%s is a %s, no run", name, kind)
	}
	return runstate.Of(ctx, c, record.Run{Name: name, WorkflowID: name, ExecutionID: d.WorkflowExecutionInfo.FirstRunId, Status: record.Running})
}

// idleQueues lists those of a run's queues that no worker polls.
func idleQueues(ctx context.Context, c client.Client, agents string) ([]string, error) {
	var idle []string
	for _, q := range []struct {
		name string
		kind enums.TaskQueueType
	}{
		{workflows.QueueTraining, enums.TASK_QUEUE_TYPE_WORKFLOW},
		{agents, enums.TASK_QUEUE_TYPE_ACTIVITY},
		{workflows.QueueTrainGPU, enums.TASK_QUEUE_TYPE_ACTIVITY},
	} {
		d, err := c.DescribeTaskQueue(ctx, q.name, q.kind)
		if err != nil {
			return nil, fmt.Errorf("describe queue %s: %w", q.name, err)
		}
		if len(d.Pollers) == 0 {
			idle = append(idle, q.name)
		}
	}
	return idle, nil
}

// reasonWidth is how much of the reason a list of runs has room for.
const reasonWidth = 160

type runsCommand struct {
	JSON    bool        `help:"Print JSON." name:"json"`
	Records recordFlags `embed:""`
}

func (c *runsCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	db, _, err := s.openRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	runs, err := db.Runs(ctx)
	if err != nil {
		return err
	}
	runs, doubt := s.allStanding(ctx, t, runs)
	if c.JSON {
		return t.json(append([]record.Run{}, runs...)) // a list also when there is none
	}
	for _, r := range runs {
		t.printf("%s\n", strings.TrimRight(fmt.Sprintf("%-24s %-10s %s  %s", r.Name, r.Status, r.Created.Local().Format(time.DateTime), shortLine(r.Failure().Error, reasonWidth)), " "))
	}
	if doubt != "" {
		fmt.Fprintf(t.err, "fulgurite: %s\n", doubt)
	}
	return nil
}

// describe is an evaluation in a few words.
func describe(e activities.Evaluation) string {
	s := fmt.Sprintf("%.3f ± %.3f", e.Mean, e.StdError)
	if e.Greedy != nil {
		s += fmt.Sprintf(" (at temperature 0: %.3f)", *e.Greedy)
	}
	return s
}
