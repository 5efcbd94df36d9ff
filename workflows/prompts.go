package workflows

import (
	"cmp"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// PromptWorkflow is a run that searches for better prompts of its agent and trains no
// weights. It compares the winner with the spec's prompts on the gate split, which the
// search does not see, and promotes it if it is better. The workflow's id is the run's
// name. Its queries and Updates are those of TrainingWorkflow.
//
// The search itself is on record: its state follows from the answers to its requests. So a
// workflow that was reset, or begun anew, asks for what has no answer yet.
func PromptWorkflow(ctx workflow.Context, in TrainingInput) (TrainingResult, error) {
	t := newTrainingRun(ctx, in.Resume)
	t.optimizes = true
	return t.execute(ctx, in)
}

// The names of the workflows that are runs, and of the one whose phases are runs.
const (
	TypeTraining = "TrainingWorkflow"
	TypePrompts  = "PromptWorkflow"
	TypePhases   = "PhasesWorkflow"
	// TypeTraffic is no run: it asks one for a step.
	TypeTraffic = "TrafficWorkflow"
)

// TypeOf returns the name of the workflow that a spec is the input of.
func TypeOf(s spec.Spec) string {
	if len(s.Phases) > 0 {
		return TypePhases
	}
	if s.Optimizer != nil {
		return TypePrompts
	}
	return TypeTraining
}

// policy returns the policy whose versions the run compares and promotes.
func (t *trainingRun) policy() string {
	if t.optimizes {
		return record.PromptsPolicy
	}
	return model.DefaultPolicy
}

// promptsOf returns the digest of a version of the prompts; empty for the spec's own.
func (t *trainingRun) promptsOf(version int) string {
	if version == 0 || t.SearchEnd == nil {
		return ""
	}
	return t.SearchEnd.Prompts
}

// optimize searches for better prompts and promotes them if they are.
func (t *trainingRun) optimize(ctx workflow.Context) (TrainingResult, error) {
	if !t.Started {
		if err := t.start(ctx); err != nil {
			return TrainingResult{}, err
		}
	}
	if t.Pending != nil {
		t.refuseAtDeadline(ctx, t.Pending)
	}
	for t.SearchEnd == nil {
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return TrainingResult{}, t.continueAsNew(ctx)
		}
		if t.Paused && t.Stop == nil {
			t.enter(ctx, PhasePaused, t.searched())
			if err := workflow.Await(ctx, func() bool { return !t.Paused || t.Stop != nil }); err != nil {
				return TrainingResult{}, err
			}
		}
		if err := t.checkBudget(ctx); err != nil {
			return TrainingResult{}, err
		}
		if t.Paused && t.Stop == nil {
			continue // it was paused in the meantime
		}
		if err := t.searchRound(ctx); err != nil {
			return TrainingResult{}, err
		}
	}
	return t.finishSearch(ctx)
}

// searchRound serves the requests that the search has open.
func (t *trainingRun) searchRound(ctx workflow.Context) error {
	var c *activities.Coordinator
	var step activities.StepSearchResult
	err := workflow.ExecuteActivity(coordination(ctx, "what the search needs"), c.StepSearch, activities.StepSearchInput{
		Run: t.Run, Stop: t.Stop != nil,
	}).Get(ctx, &step)
	if err != nil {
		return err
	}
	t.Search, t.SearchEnd = &step.Progress, step.End
	t.enter(ctx, PhaseSearch, t.searched())
	if err := t.publishSearch(ctx); err != nil {
		return err
	}
	return concurrently(ctx, t.children, len(step.Requests), func(ctx workflow.Context, i int) error {
		r := step.Requests[i]
		if r.Kind == search.Evaluate {
			return t.evaluateCandidate(ctx, r)
		}
		summary := fmt.Sprintf("%s, request %d of the search", r.Kind, r.Number)
		return workflow.ExecuteActivity(judging(ctx, summary), c.AskReflector, activities.AskReflectorInput{
			Run: t.Run, Request: r.ID,
		}).Get(ctx, nil)
	})
}

// searched says how far the search has come.
func (t *trainingRun) searched() string {
	p := *cmp.Or(t.Search, &activities.SearchProgress{})
	text := fmt.Sprintf("%d proposals, %d candidates measured", p.Proposals, p.Candidates)
	if p.Best != nil {
		text += fmt.Sprintf(", the best %.3f", *p.Best)
	}
	return text
}

// searchDetails describes the search in Markdown.
func (t *trainingRun) searchDetails() string {
	if t.Search == nil {
		return ""
	}
	var b strings.Builder
	p := *t.Search
	fmt.Fprintf(&b, "The search: %s, %s refused. Spent: %s on minibatches, %s on validation, %s.\n\n",
		t.searched(), readable.Count(p.Refused, "reply"), readable.Count(p.Spent.Minibatch, "rollout"),
		readable.Count(p.Spent.Validation, "rollout"), readable.Count(p.Spent.Reflections, "question"))
	if stop := t.Stop; stop != nil {
		fmt.Fprintf(&b, "It ends with the best so far, %s.\n\n", stop.Text())
	}
	if end := t.SearchEnd; end != nil {
		fmt.Fprintf(&b, "It has ended (%s).\n\n", end.Reason)
	}
	return b.String()
}

// publishSearch makes the run searchable in the Web UI, with the number of proposals as its
// step, when these have changed.
func (t *trainingRun) publishSearch(ctx workflow.Context) error {
	p := *t.Search
	now := [2]int{p.Proposals, t.Promoted}
	if !t.SearchAttributes || p.Best == nil || now == t.published {
		return nil
	}
	t.published = now
	run, step, promoted, reward := attributes()
	return workflow.UpsertTypedSearchAttributes(ctx,
		run.ValueSet(t.Run), step.ValueSet(int64(p.Proposals)), promoted.ValueSet(int64(t.Promoted)), reward.ValueSet(*p.Best))
}

// evaluateCandidate runs a candidate on the tasks that a request names. If a person cancels
// that, the tasks have no scores.
func (t *trainingRun) evaluateCandidate(ctx workflow.Context, r activities.SearchRequest) error {
	in := CandidateInput{
		Run: t.Run, Kind: r.Rollouts, Number: r.Number, Request: r.ID, Policy: model.DefaultPolicy,
		Tasks: r.Tasks, Samples: r.Samples, Prompts: r.Prompts,
	}
	in.Agent, in.Grader = forChildren(t.Spec)
	id := evaluationID(t.Run, r.Rollouts, r.Number)
	summary := fmt.Sprintf("request %d of the search: a candidate on %d tasks, %d attempts each", r.Number, len(r.Tasks), r.Samples)
	_, err := runChild[CandidateResult](ctx, id, summary, CandidateWorkflow, in)
	if !evaluationStopped(err) {
		return err
	}
	workflow.GetLogger(ctx).Warn("candidate not evaluated", "request", r.ID, "error", err)
	return recordResults(ctx, in, make([]search.Result, len(r.Tasks)))
}

// finishSearch compares the winner with the spec's prompts, reports the promoted version on
// the test split and closes the record.
func (t *trainingRun) finishSearch(ctx workflow.Context) (TrainingResult, error) {
	if v := t.SearchEnd.Version; v != 0 {
		if _, err := t.gate(ctx, v); err != nil {
			return TrainingResult{}, err
		}
	}
	if err := t.awaitApproval(ctx); err != nil {
		return TrainingResult{}, err
	}
	if err := t.publishSearch(ctx); err != nil {
		return TrainingResult{}, err
	}
	t.After = t.Before
	if t.has(record.Test) && t.Promoted != 0 {
		e, err := t.report(ctx, t.Promoted)
		if err != nil {
			return TrainingResult{}, err
		}
		t.After = e
	}
	return t.closeRecord(ctx, TrainingResult{
		Run: t.Run, Promoted: t.Promoted, Weights: t.Weights, Stopped: t.stop(), Before: t.Before, After: t.After,
		Search: t.Search, SearchEnd: t.SearchEnd,
	})
}

// CandidateInput asks for the scores of a candidate of a search on some tasks.
type CandidateInput struct {
	Run  string      `json:"run"`
	Kind record.Kind `json:"kind"`
	// Number and Request name the request of the search.
	Number  int    `json:"number"`
	Request string `json:"request"`
	Policy  string `json:"policy"`
	// Tasks are indexes in the split. A task that occurs twice is attempted twice as often.
	Tasks   []int       `json:"tasks"`
	Samples int         `json:"samples"`
	Prompts string      `json:"prompts"` // the digest of what attempts are served
	Agent   spec.Agent  `json:"agent"`
	Grader  spec.Grader `json:"grader"`
}

// CandidateResult sums up what it found.
type CandidateResult struct {
	Mean    float64 `json:"mean"`    // over the tasks with a score
	Missing int     `json:"missing"` // tasks without one
}

// CandidateWorkflow attempts each task with the prompts of a candidate, and puts the scores
// on record as the answer to the search's request. A task has no score if one of its
// attempts can have no reward because of the task. The query "progress" answers with a
// Count.
func CandidateWorkflow(ctx workflow.Context, in CandidateInput) (CandidateResult, error) {
	count := Count{Total: len(in.Tasks) * in.Samples}
	if err := workflow.SetQueryHandler(ctx, QueryProgress, func() (Count, error) { return count, nil }); err != nil {
		return CandidateResult{}, err
	}
	attempts := make([]activities.RunAgentResult, count.Total)
	err := concurrently(ctx, workflow.NewSemaphore(ctx, window), count.Total, func(ctx workflow.Context, i int) (err error) {
		attempts[i], err = runAgent(ctx, sampleInput{
			RunAgentInput: activities.RunAgentInput{
				Rollout: in.rollout(i), Index: in.Tasks[i/in.Samples], Policy: in.Policy, Prompts: in.Prompts,
			},
			Agent: in.Agent, Grader: in.Grader,
		})
		if err != nil {
			return err
		}
		count.Done++
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("%d of %d rollouts", count.Done, count.Total))
		return nil
	})
	if err != nil {
		return CandidateResult{}, err
	}
	var out CandidateResult
	results := in.results(attempts)
	for _, r := range results {
		if r.Score == nil {
			out.Missing++
			continue
		}
		out.Mean += *r.Score
	}
	out.Mean /= float64(max(1, len(results)-out.Missing))
	return out, recordResults(ctx, in, results)
}

// rollout returns the id of the i-th rollout: its task is the place in the list of tasks.
func (in CandidateInput) rollout(i int) record.RolloutID {
	return record.RolloutID{Run: in.Run, Kind: in.Kind, Step: in.Number, Task: i / in.Samples, Sample: i % in.Samples}
}

// results returns the results by place in the list of tasks.
func (in CandidateInput) results(attempts []activities.RunAgentResult) []search.Result {
	out := make([]search.Result, len(in.Tasks))
	for place := range out {
		r := search.Result{}
		sum, whole := 0.0, true
		for sample := range in.Samples {
			i := place*in.Samples + sample
			a := attempts[i]
			address := record.Address{RolloutID: in.rollout(i), Attempt: a.Attempt}
			r.Attempts = append(r.Attempts, search.Attempt{Trace: address.String(), Reward: a.Reward})
			if a.Reward == nil {
				whole = false
				continue
			}
			sum += *a.Reward
		}
		if whole {
			mean := sum / float64(in.Samples)
			r.Score = &mean
		}
		out[place] = r
	}
	return out
}

// recordResults puts results on record, which are by place in the list of tasks.
func recordResults(ctx workflow.Context, in CandidateInput, results []search.Result) error {
	for place := range results {
		results[place].Task = in.Tasks[place]
	}
	var c *activities.Coordinator
	return workflow.ExecuteActivity(coordination(ctx, "record the scores"), c.AnswerSearch, activities.AnswerSearchInput{
		Run: in.Run, Request: in.Request, Results: results,
	}).Get(ctx, nil)
}
