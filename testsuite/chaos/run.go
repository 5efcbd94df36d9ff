package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

const (
	// retryLimit is how long Temporal or the store may take to answer after a fault.
	retryLimit = 2 * time.Minute
	// stallLimit is for how long a run may make no progress at all. It is shorter than
	// the timeouts of activities, which work must not have to wait for after its worker
	// has died.
	stallLimit = 90 * time.Second
)

// trainingSpec returns the spec of a run so small that it ends within seconds without
// faults. Its agents wait before each call. The agents' limits are in calls, because a
// kill could make an attempt exceed a limit in seconds. The name is part of the judge's
// rubric, and so of the key of a judgment. So the calls of runs with other names are
// judged again.
func trainingSpec(c scenario, name string, o options) (spec.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return spec.Spec{}, fmt.Errorf("find the agent: %w", err)
	}
	agent := agentOptions{think: o.think, parallel: c.parallel}
	s := spec.Spec{
		Seed:  7,
		Model: spec.Model{WarmStart: &spec.WarmStart{Demonstrations: "arithmetic", Updates: 400, Batch: 32}},
		Agent: spec.Agent{
			Command: append([]string{self}, agent.arguments()...),
			Limits:  spec.AgentLimits{Calls: 8, Seconds: 3600},
		},
		Tasks:      spec.Tasks{Train: "arithmetic:train:64", Gate: "arithmetic:gate:8", Test: "arithmetic:test:8"},
		Grader:     spec.Grader{Type: "exact"},
		Training:   spec.Training{Steps: 5, TasksPerStep: 4, SamplesPerTask: 4, Lag: c.lag, DynamicSampling: c.dynamicSampling},
		Evaluation: spec.Evaluation{Every: 2},
	}
	if c.critic {
		s.Credit, s.Critic = spec.Credit{Assignment: credit.TurnGAE}, &spec.Critic{}
	}
	if c.lora {
		s.Model.LoRA = &spec.LoRA{}
	}
	switch c.curriculum {
	case spec.CurriculumBand:
		s.Training.Curriculum = &spec.Curriculum{Type: c.curriculum, Forget: 0.1}
	case spec.CurriculumStages:
		two, reward := 2.0, 0.2
		s.Training.Curriculum = &spec.Curriculum{Type: c.curriculum, Stages: []spec.Stage{
			{Where: &spec.Where{Field: "operands", AtMost: &two}, Until: spec.Until{Steps: 3, Reward: &reward, Over: 2}}, {},
		}}
	}
	if c.judge {
		s.Credit = spec.Credit{Assignment: credit.Judge, Judge: &spec.Judge{URL: o.judge, Model: "random", Rubric: name}}
	}
	return s.WithDefaults(), nil
}

// startRun starts a run and retries until that succeeds. If judgedAs is not empty, the
// run uses the judgments of the run of that name.
func (s *suite) startRun(ctx context.Context, name string, c scenario, judgedAs string) error {
	training, err := trainingSpec(c, cmp.Or(judgedAs, name), s.options)
	if err != nil {
		return err
	}
	data, err := json.Marshal(training)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	return s.retry(ctx, "start run "+name, func(ctx context.Context) error {
		_, err := s.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: name, TaskQueue: workflows.QueueTraining, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, "TrainingWorkflow", workflows.TrainingInput{Spec: data})
		return err
	})
}

// retry repeats f while processes come back.
func (s *suite) retry(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, retryLimit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := f(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (%w)", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// completed reports whether a run has completed. It returns an error if the run ended in
// another way or stalled. If the store or Temporal can't be reached for a moment, it
// returns false.
func (s *suite) completed(ctx context.Context, name string) (bool, error) {
	if idle := s.monitor.idle(); idle > stallLimit {
		return false, fmt.Errorf("run %s has made no progress for %v", name, idle.Round(time.Second))
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := s.db.Status(short, name)
	switch {
	case err != nil || status == "running":
		return false, nil
	case status == "completed":
		return true, nil
	case status != "":
		return false, fmt.Errorf("run %s is %s", name, status)
	}
	// It has no record yet; one that failed before it had one never will.
	d, err := s.temporal.DescribeWorkflowExecution(short, name, "")
	var absent *serviceerror.NotFound
	if errors.As(err, &absent) || err != nil {
		return false, nil
	}
	if st := d.WorkflowExecutionInfo.Status; st != enums.WORKFLOW_EXECUTION_STATUS_RUNNING && st != enums.WORKFLOW_EXECUTION_STATUS_COMPLETED {
		return false, fmt.Errorf("run %s is %s", name, st)
	}
	return false, nil
}

// awaitRun returns when a run has come to its end.
func (s *suite) awaitRun(ctx context.Context, name string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := s.completed(ctx, name)
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
