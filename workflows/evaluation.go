package workflows

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// ErrTypeEvaluation is the type of the error of an evaluation that can't say how
// good a version is.
const ErrTypeEvaluation = "EvaluationFailed"

// EvaluationInput asks for the mean reward of a version on a split.
type EvaluationInput struct {
	Run     string      `json:"run"`
	Kind    record.Kind `json:"kind"`
	Policy  string      `json:"policy"`
	Version int         `json:"version"`
	// Of is the policy whose version it is, if that is not the one that samples: attempts
	// then have version 0 of Policy, and Prompts is the digest of what they are served.
	Of      string `json:"of,omitempty"`
	Prompts string `json:"prompts,omitempty"`
	// Alone is the policy whose version it is, if each of several is promoted alone. Versions
	// has the version of each policy that attempts sample from, and First is the ordinal of
	// the first task.
	Alone    string         `json:"alone,omitempty"`
	Versions map[string]int `json:"versions,omitempty"`
	First    int            `json:"first,omitempty"`
	// Baseline is true for the evaluation of what is promoted, which a version of Alone is
	// compared with. Only its attempts are put on record.
	Baseline bool `json:"baseline,omitempty"`

	Tasks   int         `json:"tasks"`
	Samples int         `json:"samples"`          // per task, at the spec's temperature
	Greedy  bool        `json:"greedy,omitempty"` // one more per task, at temperature 0
	Agent   spec.Agent  `json:"agent"`
	Grader  spec.Grader `json:"grader"`
	// Done carries what earlier executions of this evaluation found.
	Done EvaluationTally `json:"done,omitzero"`
}

// EvaluationTally sums rewards; its numbers do not depend on the order in which
// rollouts end.
type EvaluationTally struct {
	Next    int     `json:"next"` // rollouts issued, in order of task and sample
	Count   int     `json:"count"`
	Sum     float64 `json:"sum"`
	Squares float64 `json:"squares"`
	Greedy  float64 `json:"greedy"`
}

// EvaluationWorkflow runs every task of a split and puts the result on record.
// Large splits continue as new. The query "progress" answers with a Count.
func EvaluationWorkflow(ctx workflow.Context, in EvaluationInput) (activities.Evaluation, error) {
	perTask := in.Samples
	if in.Greedy {
		perTask++
	}
	total := in.Tasks * perTask
	end := min(total, in.Done.Next+evaluationChunk)
	rewards := make([]float64, end-in.Done.Next)
	count := Count{Done: in.Done.Next, Total: total}
	if err := workflow.SetQueryHandler(ctx, QueryProgress, func() (Count, error) { return count, nil }); err != nil {
		return activities.Evaluation{}, err
	}
	if err := evaluateRange(ctx, in, perTask, in.Done.Next, rewards, &count.Done); err != nil {
		return activities.Evaluation{}, err
	}
	for i, r := range rewards {
		in.Done.add(r, in.Greedy && (in.Done.Next+i)%perTask == in.Samples)
	}
	in.Done.Next = end
	if end < total {
		return activities.Evaluation{}, workflow.NewContinueAsNewError(ctx, EvaluationWorkflow, in)
	}
	e := in.Done.evaluation(in)
	if in.Baseline {
		return e, nil
	}
	var c *activities.Coordinator
	err := workflow.ExecuteActivity(coordination(ctx, "record"), c.RecordEvaluation, activities.RecordEvaluationInput{
		Run: in.Run, Policy: cmp.Or(in.Alone, in.Of, in.Policy), Evaluation: e,
	}).Get(ctx, nil)
	return e, err
}

// evaluateRange runs rollouts from, from+1, … one for each element of rewards,
// and counts them in done.
func evaluateRange(ctx workflow.Context, in EvaluationInput, perTask, from int, rewards []float64, done *int) error {
	return concurrently(ctx, workflow.NewSemaphore(ctx, window), len(rewards), func(ctx workflow.Context, i int) error {
		task, sample := (from+i)/perTask, (from+i)%perTask
		sampled := in.Version
		if in.Of != "" {
			sampled = 0
		}
		r, err := runAgent(ctx, sampleInput{
			RunAgentInput: activities.RunAgentInput{
				Rollout: record.RolloutID{Run: in.Run, Kind: in.Kind, Step: in.Version, Task: in.First + task, Sample: sample},
				Index:   task, Policy: in.Policy, Version: sampled, Greedy: sample == in.Samples, Prompts: in.Prompts, Versions: in.Versions,
			},
			Agent: in.Agent, Grader: in.Grader,
		})
		if err != nil {
			return err
		}
		if r.Reward == nil {
			return temporal.NewNonRetryableApplicationError(
				fmt.Sprintf("task %d of the %s split can't be graded: %s", task, in.Kind, r.TaskFault), ErrTypeEvaluation, nil)
		}
		rewards[i] = *r.Reward
		*done++
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("%d of %d rollouts", *done, in.Tasks*perTask))
		return nil
	})
}

func (t *EvaluationTally) add(reward float64, greedy bool) {
	if greedy {
		t.Greedy += reward
		return
	}
	t.Count++
	t.Sum += reward
	t.Squares += reward * reward
}

func (t *EvaluationTally) evaluation(in EvaluationInput) activities.Evaluation {
	n := float64(t.Count)
	e := activities.Evaluation{Kind: in.Kind, Version: in.Version, Tasks: in.Tasks, Rollouts: t.Count, Mean: t.Sum / n}
	if t.Count > 1 {
		variance := math.Max(0, (t.Squares-n*e.Mean*e.Mean)/(n-1))
		e.StdError = math.Sqrt(variance / n)
	}
	if in.Greedy {
		greedy := t.Greedy / float64(in.Tasks)
		e.Greedy = &greedy
	}
	return e
}

// evaluateOnly executes a run that trains nothing: it makes version 0, evaluates it on
// the split that the spec names, and closes the record. If the evaluation fails, the run
// fails, unlike in a training: nothing else was asked for.
func (t *trainingRun) evaluateOnly(ctx workflow.Context) (TrainingResult, error) {
	if err := t.initPolicy(ctx); err != nil {
		return TrainingResult{}, err
	}
	if err := t.promote(ctx, model.Decision{Promoted: -1, Accept: true}); err != nil {
		return TrainingResult{}, err
	}
	t.Started = true
	e, err := t.evaluate(ctx, record.Kind(t.Spec.Evaluation.Only), 0)
	if err != nil {
		return TrainingResult{}, err
	}
	return t.closeRecord(ctx, TrainingResult{Run: t.Run, Weights: t.Weights, Evaluation: &e})
}

// closeRecord records the outcome of the run.
func (t *trainingRun) closeRecord(ctx workflow.Context, out TrainingResult) (TrainingResult, error) {
	t.enter(ctx, PhaseFinished, t.promotedText()+" is promoted")
	status := record.Completed
	if out.Stopped != nil {
		status = record.Stopped
	}
	var c *activities.Coordinator
	err := workflow.ExecuteActivity(coordination(ctx, "close the record"), c.FinishRun, activities.FinishRunInput{
		Run: t.Run, ExecutionID: workflow.GetInfo(ctx).FirstRunID, Status: status, Result: mustJSON(out),
	}).Get(ctx, nil)
	if err != nil {
		return out, err
	}
	return out, awaitHandlers(ctx)
}

// values lets the critic score the attempts of a step and returns the blob of the scores,
// "" without a critic. The critic of step s is version s−1, whatever the lag.
func (t *trainingRun) values(ctx workflow.Context, g *stepGroups) (string, error) {
	if !t.Spec.HasCritic() {
		return "", nil
	}
	var trainer *activities.Trainer
	var r activities.ScoreBatchResult
	err := workflow.ExecuteActivity(training(ctx, fmt.Sprintf("values of step %d", g.step)), trainer.ScoreBatch, activities.ScoreBatchInput{
		Run: t.Run, Step: g.step, Groups: g.groups(),
	}).Get(ctx, &r)
	return r.Values, err
}

// trainCritic makes the critic's version of a step. There is one trainer, so this follows
// the policy's update and does not run at the same time.
func (t *trainingRun) trainCritic(ctx workflow.Context, g *stepGroups, batch string) (map[string]float64, error) {
	if !t.Spec.HasCritic() {
		return nil, nil
	}
	var trainer *activities.Trainer
	var v activities.VersionResult
	err := workflow.ExecuteActivity(training(ctx, fmt.Sprintf("critic %d from %d", g.step, g.step-1)), trainer.TrainCritic, activities.TrainCriticInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Batch: batch, Set: t.settingsOf(g.step),
	}).Get(ctx, &v)
	return v.Metrics, err
}

// reference lets version 0 score the attempts of a step, if that is part of their
// rewards. Specs from before there was such a key do not ask for it, so old histories
// need no version of the workflow.
func (t *trainingRun) reference(ctx workflow.Context, g *stepGroups) (string, error) {
	if !t.Spec.HasKLInReward() {
		return "", nil
	}
	var trainer *activities.Trainer
	var r activities.ScoreReferenceResult
	err := workflow.ExecuteActivity(training(ctx, fmt.Sprintf("version 0 on step %d", g.step)), trainer.ScoreReference, activities.ScoreReferenceInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Groups: g.groups(),
	}).Get(ctx, &r)
	return r.Reference, err
}

// judge asks a judge about the calls of a step, if the spec wants that, and returns the
// blob of the judgments. Specs from before there were judges ask for none, so old
// histories need no version of the workflow.
func (t *trainingRun) judge(ctx workflow.Context, g *stepGroups) (string, error) {
	if t.Spec.Credit.Assignment != credit.Judge {
		return "", nil
	}
	var c *activities.Coordinator
	var out activities.JudgeCallsResult
	err := workflow.ExecuteActivity(judging(ctx, fmt.Sprintf("calls of step %d", g.step)), c.JudgeCalls, activities.JudgeCallsInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Groups: g.groups(),
	}).Get(ctx, &out)
	g.addMetrics(out.Metrics)
	return out.Judgments, err
}

// judging returns a context for asking a judge about all attempts of a step.
func judging(ctx workflow.Context, summary string) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           QueueTraining,
		StartToCloseTimeout: 24 * time.Hour,   // for thousands of slow answers; the spec bounds the requests
		HeartbeatTimeout:    10 * time.Second, // seconds lost when a worker dies; it beats every second
		RetryPolicy:         forever(time.Second, 30*time.Second),
		Summary:             summary,
	})
}
