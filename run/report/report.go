package report

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report/agents"
	"github.com/fulgurite/fulgurite/run/report/timing"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// Report is the account of a policy of a run. The keys of its JSON are a public
// contract.
type Report struct {
	Run    string        `json:"run"`
	Policy string        `json:"policy"`
	Status record.Status `json:"status"`
	// Error says why a run that ended did not complete.
	Error string `json:"error,omitempty"`
	// Steps is how many of the Planned steps are finished.
	Steps   int     `json:"steps"`
	Planned int     `json:"planned"`
	Prompts Prompts `json:"prompts"`
	// Samples is how many rollouts were trained on.
	Samples int `json:"samples"`
	// Replies counts the replies in the batches of finished steps.
	Replies       Replies                 `json:"replies"`
	Attempts      Attempts                `json:"attempts"`
	ByKind        map[trace.Kind]Attempts `json:"attempts_by_kind"`
	Interruptions Interruptions           `json:"interruptions"`
	ByStep        []Step                  `json:"by_step"`
	Quarantines   []record.Quarantine     `json:"quarantines"`
	// LeftOut lists why groups are in a batch without being trained.
	LeftOut []string `json:"left_out,omitempty"`
	// Warning says that the last steps taught nothing, and what their attempts have in
	// common; empty if they did not.
	Warning     string                `json:"warning,omitempty"`
	Divergences []Divergence          `json:"divergences"`
	Refusals    []Refusal             `json:"refusals"` // of model calls, by code
	Versions    int                   `json:"versions"`
	Collected   []int                 `json:"collected"` // versions whose files were deleted
	Promoted    *int                  `json:"promoted"`  // null before the first promotion
	Pinned      bool                  `json:"pinned"`
	Pointer     map[record.Source]int `json:"pointer_moves"` // number of moves by what moved the pointer
	Promotions  []record.Promotion    `json:"promotions"`
	Decisions   []record.Decision     `json:"decisions"` // those that did not move the pointer
	Evaluations []Evaluation          `json:"evaluations"`
	// Agents is what each named agent contributed to the evaluations; nil unless it was asked
	// for.
	Agents *agents.Report `json:"agents,omitempty"`
	// Time is where the time of the run went; nil unless it was asked for.
	Time *timing.Report `json:"time,omitempty"`
	// Only is the split of a run that trains nothing. Evaluates is the model that it
	// evaluates, if that is not the run's own.
	Only      trace.Kind `json:"evaluation_only,omitempty"`
	Evaluates string     `json:"evaluates,omitempty"`
	// Faults lists what is wrong with the run, each in one line.
	Faults []string `json:"faults"`

	interrupted map[int]Interruptions // by training step
}

// Replies counts replies of the model.
type Replies struct {
	Total  int `json:"total"`
	CutOff int `json:"cut_off"` // by a limit of tokens
	// Masked is how many of those that were cut off are not trained, because
	// credit.truncated is "mask".
	Masked int `json:"masked"`
}

func repliesOf(steps []record.Step) Replies {
	var r Replies
	for _, s := range steps {
		r.Total += int(s.Metrics["batch/calls"])
		r.CutOff += int(s.Metrics["batch/cut_off"])
		r.Masked += int(s.Metrics["batch/masked"])
	}
	return r
}

// OK reports whether nothing is wrong: every prompt is accounted for.
func (r Report) OK() bool { return len(r.Faults) == 0 }

// Evaluation is an evaluation on record, with pass@k if it has several samples of each
// task.
type Evaluation struct {
	record.Evaluation
	Pass *evaluation.Passes `json:"pass,omitempty"`
}

// Divergence is where an attempt did not repeat what an earlier one had recorded.
type Divergence struct {
	Attempt string `json:"attempt"`
	Call    int    `json:"call"`
	trace.Divergence
}

// Of makes the report of one policy of a run. It reads the steps first, because
// everything that belongs to a finished step is recorded before the step.
func Of(ctx context.Context, s Store, blobs Blobs, run, policy string) (Report, error) {
	m, err := readRecords(ctx, s, blobs, run, policy)
	if err != nil {
		return Report{}, fmt.Errorf("report on run %s: %w", run, err)
	}
	r := Report{
		Run: run, Policy: policy, Status: m.run.Status, Error: m.run.Failure().Error, Steps: len(m.steps), Planned: PlannedSteps(m.spec.Training.Total(len(m.tasks)), m.actions),
		Quarantines: m.quarantines, Versions: len(m.versions), Promotions: m.promotions, Decisions: m.decisions, Only: trace.Kind(m.spec.Evaluation.Only), Evaluates: evaluation.ModelOf(m.spec),
		Replies: repliesOf(m.steps), Refusals: Refusals(m.refusals), Pointer: map[record.Source]int{}, ByKind: map[trace.Kind]Attempts{},
	}
	for _, v := range m.versions {
		if !v.Collected.IsZero() {
			r.Collected = append(r.Collected, v.Number)
		}
	}
	for _, p := range m.promotions {
		r.Pointer[p.Source]++
		r.Promoted, r.Pinned = &p.Version, p.Pinned()
	}
	for _, d := range m.divergences {
		r.Divergences = append(r.Divergences, Divergence{d.Address.String(), d.Seq, d})
	}
	if r.Evaluations, err = Evaluations(ctx, s, m.evaluations, m.spec); err != nil {
		return Report{}, fmt.Errorf("report on run %s: %w", run, err)
	}
	r.countAttempts(m)
	if err := r.accountForPrompts(ctx, m, blobs); err != nil {
		return Report{}, fmt.Errorf("report on run %s: %w", run, err)
	}
	r.fill()
	return r, nil
}

// Evaluations adds pass@k to evaluations of a run, of all that have several samples of
// each task. One that lacks rewards has none.
func Evaluations(ctx context.Context, s Scores, all []record.Evaluation, of spec.Spec) ([]Evaluation, error) {
	var out []Evaluation
	for _, e := range all {
		one := Evaluation{Evaluation: e}
		if e.Rollouts > e.Tasks {
			rewards, err := evaluation.Rewards(ctx, s, e)
			if err != nil && !errors.Is(err, evaluation.ErrIncomplete) {
				return nil, err
			}
			one.Pass = evaluation.PassesOf(rewards, of.Evaluation.SuccessThreshold())
		}
		out = append(out, one)
	}
	return out, nil
}

// fill turns nil into empty lists, for readers of the JSON.
func (r *Report) fill() {
	r.ByStep = append([]Step{}, r.ByStep...)
	r.Quarantines = append([]record.Quarantine{}, r.Quarantines...)
	r.Divergences = append([]Divergence{}, r.Divergences...)
	r.Collected = append([]int{}, r.Collected...)
	r.Promotions = append([]record.Promotion{}, r.Promotions...)
	r.Decisions = append([]record.Decision{}, r.Decisions...)
	r.Evaluations = append([]Evaluation{}, r.Evaluations...)
	r.Faults = append([]string{}, r.Faults...)
}
