package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// RolloutInput asks for the group of one task: all its samples in one step.
type RolloutInput struct {
	Run     string      `json:"run"`
	Kind    trace.Kind  `json:"kind"`
	Step    int         `json:"step"`
	Task    int         `json:"task"`  // ordinal in the stream of training tasks
	Index   int         `json:"index"` // in the train split
	Policy  string      `json:"policy"`
	Version int         `json:"version"`
	Samples int         `json:"samples"`
	Agent   spec.Agent  `json:"agent"`
	Grader  spec.Grader `json:"grader"`
}

// RolloutResult is the group and its counts.
type RolloutResult struct {
	Group  activities.Group `json:"group"`
	Failed int              `json:"failed"` // attempts that counted although the agent failed
	Calls  int              `json:"calls"`
	Tokens int              `json:"tokens"`
	// Quarantine says why the task can't be trained on, if the reason is the task and not
	// the policy; empty if it can.
	Quarantine string `json:"quarantine,omitempty"`
}

// RolloutWorkflow runs all samples of one task, as many at once as the window lets it.
// Each sample is retried separately; the group is complete or fails. The task has to be
// quarantined if one of its samples can't be graded, or if the agent failed before its
// first model call in all of them.
func RolloutWorkflow(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	out := RolloutResult{Group: activities.Group{
		Task: in.Task, Attempts: make([]int, in.Samples), Rewards: make([]float64, in.Samples),
	}}
	if in.Kind == trace.Reserve {
		out.Group.Kind = in.Kind
	}
	results := make([]activities.RunAgentResult, in.Samples)
	err := concurrently(ctx, workflow.NewSemaphore(ctx, window), in.Samples, func(ctx workflow.Context, i int) error {
		id := trace.RolloutID{Run: in.Run, Kind: in.Kind, Step: in.Step, Task: in.Task, Sample: i}
		r, err := runAgent(ctx, sampleInput{
			RunAgentInput: activities.RunAgentInput{Rollout: id, Index: in.Index, Policy: in.Policy, Version: in.Version},
			Agent:         in.Agent, Grader: in.Grader,
		})
		if err != nil {
			return err
		}
		results[i] = r
		if r.Title != "" {
			workflow.SetCurrentDetails(ctx, fmt.Sprintf("Task `%s`", r.Title))
		}
		out.Group.Attempts[i] = r.Attempt
		if r.Reward != nil {
			out.Group.Rewards[i] = *r.Reward
		}
		out.Calls += r.Calls
		out.Tokens += r.Tokens
		if r.Outcome == trace.AgentFailed {
			out.Failed++
		}
		return nil
	})
	out.Quarantine = quarantine(results)
	return out, err
}

// quarantine returns the reason to quarantine a task with these samples, or "".
func quarantine(samples []activities.RunAgentResult) string {
	early := 0
	for _, r := range samples {
		if r.Reward == nil {
			return r.TaskFault // can't be graded
		}
		if r.TaskFault != "" {
			early++
		}
	}
	if early == len(samples) {
		return samples[0].TaskFault
	}
	return ""
}

type sampleInput struct {
	activities.RunAgentInput
	Agent  spec.Agent
	Grader spec.Grader
}

// runAgent runs one sample until it has a reward, or until it can have none because of a
// fault of its task.
func runAgent(ctx workflow.Context, in sampleInput) (activities.RunAgentResult, error) {
	var runner *activities.Runner
	r, err := attempted(ctx, in)
	if err != nil || r.Reward != nil || r.TaskFault != "" {
		return r, err
	}
	var grade activities.GradeRolloutResult
	err = workflow.ExecuteActivity(grading(ctx, in.Agent, in.Grader), runner.GradeRollout, activities.GradeRolloutInput{
		Address: trace.Address{RolloutID: in.Rollout, Attempt: r.Attempt}, Index: in.Index,
	}).Get(ctx, &grade)
	if grade.TaskFault != "" {
		r.TaskFault = grade.TaskFault
		return r, err
	}
	r.Reward = &grade.Reward
	return r, err
}

// attempted runs one sample to the end of the attempt that counts.
func attempted(ctx workflow.Context, in sampleInput) (activities.RunAgentResult, error) {
	if in.Agent.Temporal != nil {
		return runExternalAgent(ctx, in)
	}
	var runner *activities.Runner
	var r activities.RunAgentResult
	summary := fmt.Sprintf("sample %d at version %d", in.Rollout.Sample, in.Version)
	err := workflow.ExecuteActivity(rollouts(ctx, in.Agent, summary), runner.RunAgent, in.RunAgentInput).Get(ctx, &r)
	return r, err
}
