package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// TrainingWorkflow is a run: it trains the policy of a spec step by step and
// promotes what is better. The workflow's id is the run's name.
func TrainingWorkflow(ctx workflow.Context, in TrainingInput) (TrainingResult, error) {
	t := &trainingRun{TrainingState: in.Resume}
	if t.TrainingState == nil {
		t.TrainingState = &TrainingState{Run: workflow.GetInfo(ctx).WorkflowExecution.ID}
	}
	if err := workflow.SetQueryHandler(ctx, QueryProgress, t.progress); err != nil {
		return TrainingResult{}, err
	}
	result, err := t.run(ctx, in)
	if err != nil && !workflow.IsContinueAsNewError(err) {
		t.abandon(ctx, err)
	}
	return result, err
}

// trainingRun is a run under way.
type trainingRun struct {
	*TrainingState
	phase    Phase
	subject  string
	rollouts Count // of the wave under way
}

// run goes on from wherever the state is.
func (t *trainingRun) run(ctx workflow.Context, in TrainingInput) (TrainingResult, error) {
	if in.Resume == nil {
		if err := t.prepare(ctx, in); err != nil {
			return TrainingResult{}, err
		}
	}
	if !t.Started {
		if err := t.start(ctx); err != nil {
			return TrainingResult{}, err
		}
	}
	for t.Step < t.steps() {
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return TrainingResult{}, workflow.NewContinueAsNewError(ctx, TrainingWorkflow, TrainingInput{Resume: t.TrainingState})
		}
		if err := t.step(ctx); err != nil {
			return TrainingResult{}, err
		}
	}
	return t.finish(ctx)
}

// prepare makes everything that the run reads immutable.
func (t *trainingRun) prepare(ctx workflow.Context, in TrainingInput) error {
	t.enter(ctx, PhasePreparing, "the spec")
	var c *activities.Coordinator
	var r activities.PrepareRunResult
	err := workflow.ExecuteActivity(coordination(ctx, "read the spec, snapshot the tasks"), c.PrepareRun, activities.PrepareRunInput{
		Spec: in.Spec, Run: t.Run, WorkflowID: t.Run, ExecutionID: workflow.GetInfo(ctx).FirstRunID,
	}).Get(ctx, &r)
	if err != nil {
		return err
	}
	t.Spec, t.Splits, t.SearchAttributes = r.Spec, r.Splits, r.SearchAttributes
	return nil
}

// start makes version 0, the one to beat.
func (t *trainingRun) start(ctx workflow.Context) error {
	if err := t.initPolicy(ctx); err != nil {
		return err
	}
	if t.has(trace.Test) {
		e, err := t.evaluate(ctx, trace.Test, 0)
		if err != nil {
			return err
		}
		t.Before = &e
	}
	decision := model.Decision{Promoted: -1, Accept: true}
	if t.has(trace.Gate) {
		e, err := t.evaluate(ctx, trace.Gate, 0)
		if err != nil {
			return err
		}
		t.Gate, decision.Reward = e.Mean, e.Mean
	}
	if err := t.promote(ctx, decision); err != nil {
		return err
	}
	t.Started = true
	return nil
}

// initPolicy makes version 0 and publishes it.
func (t *trainingRun) initPolicy(ctx workflow.Context) error {
	t.enter(ctx, PhaseWarmStart, "version 0")
	var trainer *activities.Trainer
	var v activities.VersionResult
	err := workflow.ExecuteActivity(training(ctx, "make version 0"), trainer.InitPolicy, activities.InitPolicyInput{
		Run: t.Run, Policy: model.DefaultPolicy,
	}).Get(ctx, &v)
	if err != nil {
		return err
	}
	t.Weights = v.Weights
	return t.publish(ctx, 0)
}

// step trains version Step into version Step+1.
func (t *trainingRun) step(ctx workflow.Context) error {
	step := t.Step + 1
	groups, reward, err := t.rollOut(ctx, step)
	if err != nil {
		return err
	}
	t.enter(ctx, PhaseUpdate, fmt.Sprintf("step %d", step))
	var c *activities.Coordinator
	var batch activities.AssignCreditResult
	err = workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("batch of step %d", step)), c.AssignCredit, activities.AssignCreditInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: step, Groups: groups,
	}).Get(ctx, &batch)
	if err != nil {
		return err
	}
	var trainer *activities.Trainer
	var v activities.VersionResult
	err = workflow.ExecuteActivity(training(ctx, fmt.Sprintf("version %d from %d", step, step-1)), trainer.TrainStep, activities.TrainStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: step, Batch: batch.Batch,
	}).Get(ctx, &v)
	if err != nil {
		return err
	}
	if err := t.publish(ctx, step); err != nil {
		return err
	}
	t.Weights = v.Weights
	point := CurvePoint{Step: step, Reward: reward}
	if t.evaluates(step) {
		if point.Gate, err = t.gate(ctx, step); err != nil {
			return err
		}
	}
	err = workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("record step %d", step)), c.RecordStep, activities.RecordStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: step, Batch: batch.Batch, Metrics: merge(batch.Metrics, v.Metrics),
	}).Get(ctx, nil)
	if err != nil {
		return err
	}
	t.Step = step
	t.Cursor += len(groups)
	t.record(point)
	return t.publishAttributes(ctx)
}

// rollOut runs the step's tasks, one child workflow each, and returns their
// groups in task order and the mean reward.
func (t *trainingRun) rollOut(ctx workflow.Context, step int) ([]activities.Group, float64, error) {
	tr := t.Spec.Training
	t.enter(ctx, PhaseRollouts, fmt.Sprintf("step %d", step))
	t.rollouts = Count{Total: tr.TasksPerStep * tr.SamplesPerTask}
	results := make([]RolloutResult, tr.TasksPerStep)
	slots := workflow.NewSemaphore(ctx, window)
	wg := workflow.NewWaitGroup(ctx)
	var failure error
	for i := range results {
		if err := slots.Acquire(ctx, 1); err != nil {
			return nil, 0, err
		}
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			defer slots.Release(1)
			task := t.Cursor + i
			index, _ := tasks.At(t.Spec.Seed, t.Splits[trace.Train].Count, task)
			child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: rolloutID(t.Run, trace.Train, step, task)})
			err := workflow.ExecuteChildWorkflow(child, RolloutWorkflow, RolloutInput{
				Run: t.Run, Kind: trace.Train, Step: step, Task: task, Index: index, Policy: model.DefaultPolicy, Version: step - 1,
				Samples: tr.SamplesPerTask, Agent: t.Spec.Agent, Grader: t.Spec.Grader,
			}).Get(ctx, &results[i])
			if err != nil {
				failure = err
				return
			}
			t.rollouts.Done += tr.SamplesPerTask
		})
	}
	wg.Wait(ctx)
	if failure != nil {
		return nil, 0, failure
	}
	groups := make([]activities.Group, len(results))
	sum := 0.0
	for i, r := range results {
		groups[i] = r.Group
		for _, reward := range r.Group.Rewards {
			sum += reward
		}
		t.Failed += r.Failed
		t.Calls += r.Calls
		t.Tokens += r.Tokens
	}
	return groups, sum / float64(t.rollouts.Total), nil
}

// gate evaluates version v on the gate split and promotes it if it is better.
func (t *trainingRun) gate(ctx workflow.Context, v int) (*float64, error) {
	e, err := t.evaluate(ctx, trace.Gate, v)
	if err != nil {
		return nil, err
	}
	d := model.Decide(v, t.Promoted, e.Mean, t.Gate, t.Spec.Promotion.Margin)
	t.Decisions = append(t.Decisions, d)
	if d.Accept {
		if err := t.promote(ctx, d); err != nil {
			return nil, err
		}
		t.Promoted, t.Gate = v, e.Mean
	}
	return &e.Mean, nil
}

func (t *trainingRun) evaluate(ctx workflow.Context, kind trace.Kind, v int) (activities.Evaluation, error) {
	id := evaluationID(t.Run, kind, v)
	t.enter(ctx, PhaseEvaluation, id)
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id})
	var e activities.Evaluation
	err := workflow.ExecuteChildWorkflow(child, EvaluationWorkflow, EvaluationInput{
		Run: t.Run, Kind: kind, Policy: model.DefaultPolicy, Version: v, Tasks: t.Splits[kind].Count,
		Samples: t.Spec.Evaluation.Samples, Greedy: kind == trace.Test, Agent: t.Spec.Agent, Grader: t.Spec.Grader,
	}).Get(ctx, &e)
	return e, err
}

func (t *trainingRun) publish(ctx workflow.Context, v int) error {
	var c *activities.Coordinator
	return workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("version %d", v)), c.PublishVersion, model.VersionID{
		Run: t.Run, Policy: model.DefaultPolicy, Number: v,
	}).Get(ctx, nil)
}

func (t *trainingRun) promote(ctx workflow.Context, d model.Decision) error {
	var c *activities.Coordinator
	return workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("version %d", d.Candidate)), c.PromoteVersion, activities.PromoteVersionInput{
		Run: t.Run, Policy: model.DefaultPolicy, DecisionID: fmt.Sprintf("gate-%d", d.Candidate),
		Version: d.Candidate, Previous: d.Promoted, Decision: d,
	}).Get(ctx, nil)
}

// abandon closes the record of a run that did not reach its end. What failed is
// the run's error; a record that can't be closed too only adds a line to the log.
func (t *trainingRun) abandon(ctx workflow.Context, cause error) {
	status := record.Failed
	if temporal.IsCanceledError(cause) {
		status = record.Cancelled
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	var c *activities.Coordinator
	err := workflow.ExecuteActivity(coordination(ctx, "close the record"), c.FinishRun, activities.FinishRunInput{
		Run: t.Run, ExecutionID: workflow.GetInfo(ctx).FirstRunID, Status: status, Result: mustJSON(map[string]string{"error": cause.Error()}),
	}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("close the record of the run", "run", t.Run, "error", err)
	}
}

// finish reports the promoted version on the test split and closes the record.
// Without a gate split nothing could be promoted; then it is the last version.
func (t *trainingRun) finish(ctx workflow.Context) (TrainingResult, error) {
	t.After = t.Before
	final := t.Promoted
	if !t.has(trace.Gate) {
		final = t.Step
	}
	if t.has(trace.Test) && final != 0 {
		e, err := t.evaluate(ctx, trace.Test, final)
		if err != nil {
			return TrainingResult{}, err
		}
		t.After = &e
	}
	out := TrainingResult{Run: t.Run, Steps: t.Step, Promoted: t.Promoted, Weights: t.Weights, Before: t.Before, After: t.After}
	t.enter(ctx, PhaseFinished, fmt.Sprintf("version %d is promoted", t.Promoted))
	var c *activities.Coordinator
	err := workflow.ExecuteActivity(coordination(ctx, "close the record"), c.FinishRun, activities.FinishRunInput{
		Run: t.Run, ExecutionID: workflow.GetInfo(ctx).FirstRunID, Status: record.Completed, Result: mustJSON(out),
	}).Get(ctx, nil)
	return out, err
}
