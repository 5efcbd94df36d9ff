package training

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Start starts the TrainingWorkflow of a spec under a run's name, or attaches
// to it if it is under way with the same spec.
func Start(ctx context.Context, c client.Client, name string, s spec.Spec) (client.WorkflowRun, error) {
	input, err := plan.Input(s)
	if err != nil {
		return nil, err
	}
	options := client.StartWorkflowOptions{
		ID: name, TaskQueue: workflows.QueueTraining,
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            fmt.Sprintf("training run %s", name),
		Memo:                                     map[string]any{memoDigest: spec.Digest(s)},
	}
	if s.Evaluation.Only != "" {
		options.StaticSummary = fmt.Sprintf("evaluation %s", name)
	}
	r, err := c.ExecuteWorkflow(ctx, options, "TrainingWorkflow", input)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) && wasRefused(ctx, c, name) {
		options.WorkflowIDReusePolicy = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
		r, err = c.ExecuteWorkflow(ctx, options, "TrainingWorkflow", input)
	}
	if errors.As(err, &started) {
		return attach(ctx, c, name, spec.Digest(s))
	}
	if err != nil {
		return nil, fmt.Errorf("start run %s: %w", name, err)
	}
	return r, nil
}

// wasRefused reports whether a workflow ended because its spec was refused, so that
// its name is free.
func wasRefused(ctx context.Context, c client.Client, name string) bool {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	return err == nil && d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_FAILED &&
		refused(c.GetWorkflow(ctx, name, d.WorkflowExecutionInfo.Execution.RunId).Get(ctx, nil))
}

// memoDigest is where a run's workflow carries the digest of its spec.
const memoDigest = "spec_digest"

// attach finds a run that is under way with the spec of that digest; one that
// ended, or has another, is refused.
func attach(ctx context.Context, c client.Client, name, digest string) (client.WorkflowRun, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return nil, fmt.Errorf("find run %s: %w", name, err)
	}
	execution := d.WorkflowExecutionInfo
	if status := execution.Status; status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		other := fmt.Sprintf("see `%s`", shell.Command("versions", name))
		if canRetry(ctx, c, execution.Execution) {
			other = fmt.Sprintf("let this one go on with `%s`", shell.Command("retry", name))
		}
		return nil, terminal.Usagef("run %s has ended (%s): start it again under another --name, or %s", name, status, other)
	}
	var started string
	if p := execution.Memo.GetFields()[memoDigest]; p != nil {
		if err := converter.GetDefaultDataConverter().FromPayload(p, &started); err != nil {
			return nil, fmt.Errorf("read the memo of run %s: %w", name, err)
		}
	}
	if started != digest {
		return nil, terminal.Usagef("run %s is under way with another spec: start this one under another --name, or see `%s`", name, shell.Command("status", name))
	}
	return c.GetWorkflow(ctx, name, ""), nil
}

// canRetry reports whether an execution that has ended can go on once the cause is fixed.
func canRetry(ctx context.Context, c client.Client, of *common.WorkflowExecution) bool {
	err := c.GetWorkflow(ctx, of.WorkflowId, of.RunId).Get(ctx, nil)
	return err != nil && !workflows.Failure(err).Final
}

// UnderWay reports whether Temporal still runs the workflow. The store does not know for
// certain, because a run that was terminated in Temporal could not close its record.
func UnderWay(ctx context.Context, c client.Client, name string) (bool, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find run %s: %w", name, err)
	}
	return d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}
