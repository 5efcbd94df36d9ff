// Package training starts a run and follows it to its end.
package training

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite train`.
type Command struct {
	Request request `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any {
	return []any{trainResult{}, workflows.PhasesProgress{}, Started{}, status.Status{}}
}

// Run starts the run of a spec, or attaches to it, and follows it.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	e, err := c.Request.execution(ctx, t, "train", spec.Spec.Trainable)
	if err != nil {
		return err
	}
	sp := e.Plan.Spec
	if len(sp.Phases) > 0 {
		return e.phases(ctx, s, t)
	}
	result, err := e.Run(ctx, s, t)
	if err != nil || c.Request.Detach {
		return err
	}
	before, after := passes(ctx, s, t, result, sp)
	if c.Request.JSON {
		return t.JSON(trainResult{result, result.Steps, sp.Tasks.Gate != "", before, after})
	}
	svg := drawOwn(ctx, s, t, result)
	summarize(s, t, result, sp)
	if before != nil && after != nil {
		for i, p := range before.ByK {
			t.Printf("  pass@%d: %s before, %s after.\n", p.K, p.At, after.ByK[i].At)
		}
	}
	if svg != "" {
		t.Printf("Reward curve: %s\n", svg)
	}
	return nil
}

// request has the flags of the commands that start the run of a spec and follow it.
type request struct {
	Spec   string `arg:"" help:"Spec file, YAML or JSON." type:"path"`
	Name   string `help:"Name of the run (default: the spec's name, or the file's)."`
	Detach bool   `help:"Return once the run is started."`
	JSON   bool   `help:"Print the result as JSON, and no progress." name:"json"`
}

// execution returns the run of the spec. verb is the command, and check refuses the specs of
// others.
func (r request) execution(ctx context.Context, t *terminal.Terminal, verb string, check func(spec.Spec) error) (Execution, error) {
	p, err := plan.Make(ctx, r.Spec)
	if err == nil {
		err = check(p.Spec)
	}
	if err != nil {
		return Execution{}, err
	}
	p.WarnOfTasks(t)
	name, err := runName(r.Name, p.Spec.Name, r.Spec)
	if err != nil {
		return Execution{}, err
	}
	if err := p.CheckName(name); err != nil {
		return Execution{}, err
	}
	return Execution{Name: name, Plan: p, Again: r.again(verb), Detach: r.Detach, JSON: r.JSON}, nil
}

// again returns the words of the command that follows the run again.
func (r request) again(verb string) []string {
	words := []string{verb, r.Spec}
	if r.Name != "" {
		words = append(words, "--name", r.Name)
	}
	if r.JSON {
		words = append(words, "--json")
	}
	return words
}

// drawOwn draws the curve of a run that is recorded in the directory, and returns the
// path of its SVG. It returns "" if the run is not recorded there, or if the record can't
// be read.
func drawOwn(ctx context.Context, s *state.Flags, t *terminal.Terminal, r workflows.TrainingResult) string {
	if !s.Own() {
		return ""
	}
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
	if err != nil {
		return ""
	}
	defer records.Close()
	svg, err := DrawCurve(ctx, t, records.Store, r.Run, s.Layout().Run(r.Run))
	if err != nil {
		fmt.Fprintf(t.Err, "fulgurite: draw the curve of run %s: %v\n", r.Run, err)
	}
	return svg
}

// passes returns how often several attempts solve the tasks of the test split, before and
// after training. Both are nil if each task was attempted once, or if this machine has no
// record of the run.
func passes(ctx context.Context, s *state.Flags, t *terminal.Terminal, r workflows.TrainingResult, sp spec.Spec) (before, after *evaluation.Passes) {
	if r.Before == nil || r.After == nil || sp.Evaluation.Samples < 2 {
		return nil, nil
	}
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
	if err != nil {
		return nil, nil
	}
	defer records.Close()
	all, err := records.Store.Evaluations(ctx, r.Run)
	if err != nil {
		return nil, nil
	}
	evaluated, err := report.Evaluations(ctx, records.Store, all, sp)
	if err != nil {
		return nil, nil
	}
	for _, e := range evaluated {
		if e.Kind != record.Test {
			continue
		}
		// A run of this name in another store has another mean.
		if e.Version == 0 && e.Mean == r.Before.Mean {
			before = e.Pass
		}
		if e.Version == r.Promoted && e.Mean == r.After.Mean { // it may be the first version, too
			after = e.Pass
		}
	}
	return before, after
}

// trainResult is the outcome of a run, with facts that are not in its record.
type trainResult struct {
	workflows.TrainingResult
	Newest int `json:"newest"` // the version that was trained last
	// Evaluated is true if versions were compared on a gate split. Otherwise version 0
	// stays promoted.
	Evaluated bool `json:"evaluated"`
	// PassBefore and PassAfter are of the test split, with several attempts at each task.
	PassBefore *evaluation.Passes `json:"pass_before,omitempty"`
	PassAfter  *evaluation.Passes `json:"pass_after,omitempty"`
}

// refused reports whether a run ended because its spec was refused.
func refused(err error) bool {
	var failure *sdk.ApplicationError
	return errors.As(err, &failure) && failure.Type() == activities.ErrTypeRefused
}

// runName returns the first name that is not empty: that of the flag, that of the spec,
// or one made from the file's name.
func runName(flag, inSpec, file string) (string, error) {
	name, origin := flag, "--name"
	if name == "" {
		name, origin = inSpec, "name in "+file
	}
	if name == "" {
		name = strings.ToLower(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
		origin = "the run is named for the file " + file + ", as neither --name nor the spec names it"
	}
	if err := record.CheckRunName(name); err != nil {
		return "", terminal.Usagef("%s: %w", origin, err)
	}
	return name, nil
}

// summarize prints the outcome of a run. Each step made a version, so the number of steps
// is the number of the newest version.
func summarize(s *state.Flags, t *terminal.Terminal, r workflows.TrainingResult, sp spec.Spec) {
	steps := readable.Count(r.Steps, "step")
	if r.Stopped != nil {
		steps = fmt.Sprintf("stopped at %d of %d, %s", r.Stopped.After, r.Stopped.Of, terminal.Escape(r.Stopped.Text()))
	}
	if sp.Tasks.Gate != "" {
		t.Printf("Run %s: %s, %s is promoted.\n", r.Run, steps, r.PromotedText())
	} else {
		t.Printf("Run %s: %s. Nothing was evaluated, since the spec has no tasks.gate: version %d is the newest, and version %d stays promoted.\n",
			r.Run, steps, r.Steps, r.Promoted)
		newest := r.Run + "@newest"
		if names := sp.PolicyNames(); names != nil {
			newest = r.Run + ":" + names[0] + "@newest"
		}
		t.Printf("Take the newest with:  %s\n", s.Command("export", newest, "DIRECTORY"))
	}
	if r.Before != nil && r.After != nil {
		t.Printf("Test reward: %s before, %s after.\n", Describe(*r.Before), Describe(*r.After))
	}
}

// Describe returns the results of an evaluation as a short text.
func Describe(e activities.Evaluation) string {
	s := fmt.Sprintf("%.3f ± %.3f", e.Mean, e.StdError)
	if e.Greedy != nil {
		s += fmt.Sprintf(" (at temperature 0: %.3f)", *e.Greedy)
	}
	return s
}

// Start starts the workflow of a spec under a run's name, or attaches
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
	switch {
	case len(s.Phases) > 0: // phases that failed go on when they are started again
		options.StaticSummary = fmt.Sprintf("phases of %s", name)
		options.WorkflowIDReusePolicy = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	case s.Evaluation.Only != "":
		options.StaticSummary = fmt.Sprintf("evaluation %s", name)
	case s.Optimizer != nil:
		options.StaticSummary = fmt.Sprintf("search for prompts %s", name)
	}
	r, err := c.ExecuteWorkflow(ctx, options, workflows.TypeOf(s), input)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) && wasRefused(ctx, c, name) {
		options.WorkflowIDReusePolicy = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
		r, err = c.ExecuteWorkflow(ctx, options, workflows.TypeOf(s), input)
	}
	if errors.As(err, &started) {
		return attach(ctx, c, name, s)
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

// attach finds a run that is under way with the same spec; one that ended, or has another,
// is refused.
func attach(ctx context.Context, c client.Client, name string, s spec.Spec) (client.WorkflowRun, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return nil, fmt.Errorf("find run %s: %w", name, err)
	}
	execution := d.WorkflowExecutionInfo
	if status := execution.Status; status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		results := "versions"
		switch execution.GetType().GetName() {
		case workflows.TypePrompts:
			results = "prompts"
		case workflows.TypePhases:
			results = "status"
		}
		other := fmt.Sprintf("see `%s`", shell.Command(results, name))
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
	if started != spec.Digest(s) {
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

// StartRecorded starts a run as Start does, for a person, and records the action if o has
// a store. If the run can't be started because of its spec or its name, the action is
// refused.
func StartRecorded(ctx context.Context, c client.Client, o operator.Operator, a record.Action, s spec.Spec) (client.WorkflowRun, record.Action, error) {
	a.Name, a.Input.Digest = record.ActionStart, spec.Digest(s)
	var run client.WorkflowRun
	a, err := o.Record(ctx, a, func(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
		run, err = Start(ctx, c, a.Run, s)
		var usage terminal.UsageError
		if errors.As(err, &usage) {
			return out, operator.Refuse("%s", err)
		}
		return record.ActionResult{Message: "started by " + a.By}, err
	})
	if err == nil && run == nil { // it was started before
		run = c.GetWorkflow(ctx, a.Run, "")
	}
	return run, a, err
}
