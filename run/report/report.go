// Package report accounts for a run: for every prompt that the stream of tasks issued,
// for every attempt, and for the promoted pointer. It trusts no counter. It reads from
// the batches themselves what was trained. What had to be trained follows from the
// stream, which depends only on the spec.
//
// The package only reads; it repairs nothing. A running run is accounted for up to its
// last finished step; later work is shown as unfinished. If a report finds faults
// ([Report.Faults]), it says where and what: a prompt that was skipped or trained twice,
// an attempt in a batch that does not count, a batch that is not the one its version was
// trained on.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report/agents"
	"github.com/fulgurite/fulgurite/run/report/timing"
	"github.com/fulgurite/fulgurite/spec"
)

// Report is the account of a policy of a run. The keys of its JSON are a public
// contract.
type Report struct {
	Run    string        `json:"run"`
	Policy string        `json:"policy"`
	Status record.Status `json:"status"`
	// Error says why a run that ended did not complete.
	Error string `json:"error,omitempty"`
	// Isolation is what isolates its agents if they are commands: process, container
	// or none.
	Isolation string `json:"isolation,omitempty"`
	// IsolationReason says why they are not isolated, or which image they run in.
	IsolationReason string `json:"isolation_reason,omitempty"`
	// Steps is how many of the Planned steps are finished.
	Steps   int     `json:"steps"`
	Planned int     `json:"planned"`
	Prompts Prompts `json:"prompts"`
	// Samples is how many rollouts were trained on.
	Samples int `json:"samples"`
	// Replies counts the replies in the batches of finished steps.
	Replies Replies `json:"replies"`
	// Policies is the account of each of several policies, by name; absent if the run has
	// one.
	Policies      []Policy                 `json:"policies,omitempty"`
	Attempts      Attempts                 `json:"attempts"`
	ByKind        map[record.Kind]Attempts `json:"attempts_by_kind"`
	Interruptions Interruptions            `json:"interruptions"`
	ByStep        []Step                   `json:"by_step"`
	Quarantines   []record.Quarantine      `json:"quarantines"`
	// LeftOut lists why groups are in a batch without being trained.
	LeftOut []string `json:"left_out,omitempty"`
	// Warning says that the last steps taught nothing, and what their attempts have in
	// common; empty if they did not.
	Warning     string                `json:"warning,omitempty"`
	Divergences []Divergence          `json:"divergences"`
	Refusals    []Refusal             `json:"refusals"` // of model calls, by code
	Versions    int                   `json:"versions"`
	Collected   []int                 `json:"collected"` // versions whose files were deleted
	Promoted    *int                  `json:"promoted"`  // null before the first promotion, and if Policies has those of each
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
	Only      record.Kind `json:"evaluation_only,omitempty"`
	Evaluates string      `json:"evaluates,omitempty"`
	// Search is the account of a search for prompts; nil for other runs. Versions,
	// Promotions and Decisions are then of the prompts.
	Search *Search `json:"search,omitempty"`
	// Use is the account of a run that learns from conversations; nil for other runs.
	Use *Use `json:"use,omitempty"`
	// Forgotten is what was removed from the run at the request of a person. It is no fault.
	Forgotten []record.Forgotten `json:"forgotten"`
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
	record.Divergence
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
		Quarantines: m.quarantines, Versions: len(m.versions), Promotions: m.promotions, Decisions: m.decisions, Only: record.Kind(m.spec.Evaluation.Only), Evaluates: evaluation.ModelOf(m.spec),
		Replies: repliesOf(m.steps), Forgotten: m.removed, Refusals: Refusals(m.refusals), Pointer: map[record.Source]int{}, ByKind: map[record.Kind]Attempts{},
	}
	if r.Status != record.Refused { // nothing was decided for a run that was refused
		r.Isolation, r.IsolationReason = m.spec.Agent.Isolation()
	}
	for _, v := range m.versions {
		if !v.Collected.IsZero() {
			r.Collected = append(r.Collected, v.Number)
		}
	}
	for _, p := range m.promotions {
		r.Pointer[p.Source]++
		if !m.spec.Promotion.Alone { // otherwise Policies has it
			r.Promoted, r.Pinned = &p.Version, p.Pinned()
		}
	}
	for _, d := range m.divergences {
		r.Divergences = append(r.Divergences, Divergence{d.Address.String(), d.Seq, d})
	}
	if m.search != nil {
		r.Planned, r.Versions, r.Search = 0, len(m.search.Versions), searchOf(m.search)
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
			rewards, err := evaluation.Rewards(ctx, s, e, of)
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
	r.Forgotten = append([]record.Forgotten{}, r.Forgotten...)
	r.Faults = append([]string{}, r.Faults...)
}

// maxPasses is for how many evaluations, the newest ones, a text shows pass@k.
const maxPasses = 4

// maxLines is how many lines a list of a text has; the JSON has all.
const maxLines = 20

// IsolationText says whether agents are isolated, by the words of spec.Agent.Isolation.
func IsolationText(isolation, reason string) string {
	if isolation == spec.SandboxNone {
		return "not isolated: " + reason
	}
	if reason != "" {
		return fmt.Sprintf("isolated: agent.sandbox: %s (%s)", isolation, reason)
	}
	return "isolated: agent.sandbox: " + isolation
}

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	p := &page{readable.Lines{W: w}}
	if r.Search != nil {
		p.Line("Run %s: %s, a search for prompts", r.Run, r.Status)
	} else if r.Only != "" {
		p.Line("Evaluation %s: %s, of %s on the %s split", r.Run, r.Status, cmp.Or(r.Evaluates, "version 0"), r.Only)
	} else {
		p.Line("Run %s: %s, %d of %s finished", r.Run, r.Status, r.Steps, readable.Count(r.Planned, "step"))
	}
	if r.Error != "" {
		p.Line("  %s", r.Error)
	}
	if r.Warning != "" {
		p.Line("  warning: %s", r.Warning)
	}
	if r.Isolation != "" {
		p.Line("  its agents are %s", IsolationText(r.Isolation, r.IsolationReason))
	}
	switch {
	case r.Search != nil:
		p.writeSearch(*r.Search)
	case r.Use != nil:
		p.writeUse(*r.Use)
	case r.Only == "":
		p.writePrompts(r)
	}
	p.writePolicies(r.Policies)
	p.writeAttempts(r)
	p.writeQuarantines(r)
	p.writePointer(r)
	p.writeEvaluations(r)
	if r.Agents != nil && p.Err == nil {
		p.Err = r.Agents.WriteText(w)
	}
	if r.Time != nil && p.Err == nil {
		p.Err = r.Time.WriteText(w)
	}
	p.writeForgotten(r.Forgotten)
	p.writeFaults(r)
	return p.Err
}

func (p *page) writeForgotten(all []record.Forgotten) {
	if len(all) == 0 {
		return
	}
	p.Line("\nRemoved at the request of a person")
	p.lines(len(all), func(i int) {
		f, what := all[i], "the bodies, spans and printed output of all attempts"
		switch f.What {
		case record.ForgottenTask:
			what = fmt.Sprintf("task %q", f.Task)
		case record.ForgottenUser:
			what = fmt.Sprintf("what the user %.12s said", f.Task)
		}
		if f.Ended.IsZero() {
			what += " (the removal was interrupted)"
		}
		p.Line("  %s  %s, by %s", readable.Time(f.Begun), what, f.By)
	})
}

// page writes the lines of a text.
type page struct{ readable.Lines }

// lines writes the first of n lines, and how many more there are.
func (p *page) lines(n int, line func(i int)) {
	for i := range min(n, maxLines) {
		line(i)
	}
	if n > maxLines {
		p.Line("  … and %d more; --json has all", n-maxLines)
	}
}

func (p *page) writePrompts(r Report) {
	q := r.Prompts
	p.Line("\nPrompts of finished steps")
	p.Line("  issued            %8d", q.Issued)
	p.Line("  refills           %8d", q.Refills)
	p.Line("  trained once      %8d  (%s)", q.Trained, readable.Count(r.Samples, "sample"))
	p.Line("  quarantined       %8d", q.Quarantined)
	if q.Flat > 0 {
		p.Line("  flat              %8d  (%s; not trained: no advantage)", q.Flat, readable.Count(q.FlatSamples, "sample"))
	}
	if q.LeftOut > 0 {
		p.Line("  left out          %8d  (not trained: no credit could be given)", q.LeftOut)
		p.lines(len(r.LeftOut), func(i int) { p.Line("    %s", r.LeftOut[i]) })
	}
	if c := r.Replies; c.Masked > 0 {
		p.Line("  replies cut off   %8d  (of %d; %d of them not trained: credit.truncated is mask)", c.CutOff, c.Total, c.Masked)
	} else if c.CutOff > 0 {
		p.Line("  replies cut off   %8d  (of %d, by a limit of tokens)", c.CutOff, c.Total)
	}
	if q.Forgotten > 0 {
		p.Line("  forgotten         %8d  (the batches of their steps were removed with a task)", q.Forgotten)
	}
	p.Line("  skipped           %8d", q.Skipped)
	p.Line("  duplicated        %8d", q.Duplicated)
	if q.Unexpected > 0 {
		p.Line("  unexpected        %8d", q.Unexpected)
	}
	if q.UnderWay > 0 {
		p.Line("  under way         %8d", q.UnderWay)
	}
	if q.Withdrawn > 0 {
		p.Line("  withdrawn         %8d  (no attempt counts: the run was retried)", q.Withdrawn)
	}
	if q.Abandoned > 0 {
		p.Line("  abandoned         %8d  (begun in a step that was not finished when the run ended)", q.Abandoned)
	}
}

func (p *page) writeAttempts(r Report) {
	p.Line("\nAttempts")
	p.Line("  %-17s %8s %9s %12s %11s %8s", "", "total", "completed", "agent failed", "infra fault", "lost")
	for _, kind := range slices.Sorted(maps.Keys(r.ByKind)) {
		a := r.ByKind[kind]
		p.Line("  %-17s %8d %9d %12d %11d %8d", kind, a.Total, a.Completed, a.AgentFailed, a.InfraFault, a.Lost)
	}
	a := r.Attempts
	p.Line("  %-17s %8d %9d %12d %11d %8d", "all", a.Total, a.Completed, a.AgentFailed, a.InfraFault, a.Lost)
	if len(a.Failures) > 0 {
		p.Line("  agents failed by: %s", kinds(a.Failures))
	}
	if len(a.Faults) > 0 {
		p.Line("  faults by: %s", kinds(a.Faults))
	}
	if a.Repeated > 0 {
		p.Line("  repeated although they had a result: %d", a.Repeated)
	}
	if a.Running > 0 {
		p.Line("  running: %d", a.Running)
	}
	if a.Begun > 0 {
		p.Line("  begun, and nothing runs them at the moment: %d", a.Begun)
	}
	if a.Unfinished > 0 {
		p.Line("  unfinished when the run ended: %d", a.Unfinished)
	}
	p.Line("  model calls: %d recorded, %d of them replayed", a.Calls.Recorded, a.Calls.Replayed)
	p.Line("  tokens: %d recorded, %d not sampled again", a.Calls.Tokens, a.Calls.TokensSaved)
	if a.Calls.CutOff > 0 {
		p.Line("  replies cut off at a limit of tokens, of all attempts: %d, in %s", a.Calls.CutOff, counted(a.Calls.AttemptsWithCutOff, "attempt"))
	}
	p.writeRefusals(r.Refusals)
	if i := r.Interruptions; i.Count > 0 {
		p.Line("  interruptions: %d, %s lost in all, median %s, most %s", i.Count, duration(i.Seconds), duration(i.MedianSeconds), duration(i.MaxSeconds))
	}
	if len(r.Divergences) > 0 {
		p.Line("  attempts that did not repeat what was recorded: %d", len(r.Divergences))
		p.lines(len(r.Divergences), func(i int) {
			d := r.Divergences[i]
			p.Line("    %s, call %d: %s", d.Attempt, d.Call, d.Difference)
		})
	}
}

// kinds lists counts by kind.
func kinds(counts map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(out, ", ")
}

func (p *page) writeQuarantines(r Report) {
	if len(r.Quarantines) == 0 {
		return
	}
	p.Line("\nQuarantined")
	p.lines(len(r.Quarantines), func(i int) {
		q := r.Quarantines[i]
		p.Line("  %s, task %d of the split: %s", prompt{q.Kind, q.Step, q.Task}, q.Index, q.Reason)
	})
}

func (p *page) writePointer(r Report) {
	p.Line("\nVersions: %d", r.Versions)
	if text := CollectedText(r.Collected); text != "" {
		p.Line("  %s", text)
	}
	lines := History(r.Promotions, r.Decisions)
	p.lines(len(lines), func(i int) { p.Line("  %s  %s", readable.Time(lines[i].At), lines[i].Text) })
	if r.Pinned {
		p.Line("  version %d is pinned", *r.Promoted)
	}
	for _, one := range r.Policies {
		if one.Pinned {
			p.Line("  %s, version %d is pinned", one.Policy, *one.Promoted)
		}
	}
}

// CollectedText returns a line with the versions whose files were deleted; versions must
// be in ascending order. It returns "" if there are none.
func CollectedText(versions []int) string {
	if len(versions) == 0 {
		return ""
	}
	return "deleted, as training.keep says, so their weights are gone: " + Ranges(versions)
}

// Ranges lists numbers in ascending order with ranges for those that follow each other, such
// as "1–3, 7".
func Ranges(versions []int) string {
	var ranges []string
	for i := 0; i < len(versions); {
		first := i
		for i++; i < len(versions) && versions[i] == versions[i-1]+1; i++ {
		}
		text := strconv.Itoa(versions[first])
		if last := versions[i-1]; last != versions[first] {
			text += "–" + strconv.Itoa(last)
		}
		ranges = append(ranges, text)
	}
	return strings.Join(ranges, ", ")
}

func (p *page) writeEvaluations(r Report) {
	if len(r.Evaluations) == 0 {
		return
	}
	p.Line("\n%8s  %-5s  %6s  %6s  %8s  %6s", "version", "split", "mean", "±", "rollouts", "greedy")
	for _, e := range r.Evaluations {
		greedy := ""
		if e.Greedy != nil {
			greedy = fmt.Sprintf("%.3f", *e.Greedy)
		}
		p.Line("%8d  %-5s  %6.3f  %6.3f  %8d  %6s", e.Version, e.Kind, e.Mean, e.StdError, e.Rollouts, greedy)
	}
	shown := slices.DeleteFunc(slices.Clone(r.Evaluations), func(e Evaluation) bool { return e.Pass == nil })
	for _, e := range shown[max(0, len(shown)-maxPasses):] {
		p.Line("\nVersion %d on the %s split", e.Version, e.Kind)
		if p.Err == nil {
			p.Err = e.Pass.WriteText(p.W, "  ")
		}
	}
	if more := len(shown) - maxPasses; more > 0 {
		p.Line("  … and of %d evaluations before; --json has all", more)
	}
}

func (p *page) writeFaults(r Report) {
	if r.OK() && (r.Only != "" || r.Search != nil) {
		return
	}
	if r.OK() {
		what := "prompt"
		if r.Use != nil {
			what = "segment"
		}
		p.Line("\nEvery %s is accounted for.", what)
		return
	}
	p.Line("\nSomething is wrong with this run:")
	p.lines(len(r.Faults), func(i int) { p.Line("  %s", r.Faults[i]) })
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

// orNone returns a digest, and "none" if it is empty.
func orNone(digest string) string {
	if digest == "" {
		return "none"
	}
	return digest
}
