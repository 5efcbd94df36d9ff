// Package status says how runs are doing: what the store has on record, what
// Temporal says of it, and what keeps a run from going on.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite status`.
type Command struct {
	Run_    string            `arg:"" name:"run" help:"Name of the run."`
	JSON    bool              `help:"Print JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// Status is the output of `fulgurite status`.
type Status struct {
	Run    string        `json:"run"`
	Status record.Status `json:"status"`
	// Error says why a run that ended did not complete.
	Error string `json:"error,omitempty"`
	// Stop is the request to end the run early. While the run is under way, it says that
	// the run is stopping.
	Stop *record.Stop `json:"stop,omitempty"`
	// Isolation is what isolates its agents if they are commands: process, container
	// or none.
	Isolation string `json:"isolation,omitempty"`
	// IsolationReason says why they are not isolated, or which image they run in.
	IsolationReason string `json:"isolation_reason,omitempty"`
	// Progress is that of the run's workflow. When the run has ended, or the workflow
	// can't be asked, it is what the store has. It is absent for a run that was refused,
	// that is not on record yet, or that does not answer.
	Progress *workflows.Progress `json:"progress,omitempty"`
	// Phases are those of a spec with phases, whose runs have a status of their own.
	Phases []workflows.PhaseProgress `json:"phases,omitempty"`
	// Only is the split of a run that trains nothing. Evaluated counts what its
	// evaluation has done, while the run is under way.
	Only      string           `json:"evaluation_only,omitempty"`
	Evaluated *workflows.Count `json:"evaluated,omitempty"`
	// Budget is what the search of a run that improves prompts may spend at most. What it
	// has spent is in progress.
	Budget *spec.OptimizerBudget `json:"search_budget,omitempty"`
	// Usage counts the model calls of all attempts so far, those of evaluations too.
	Usage *record.Usage `json:"usage,omitempty"`
	// Spent is what a run under way with a budget has used of it.
	Spent *Spent `json:"spent,omitempty"`
	// Collected are the versions that gave up their files.
	Collected []int `json:"collected,omitempty"`
	// Evaluations are those on record, with pass@k where they have several samples.
	Evaluations []report.Evaluation `json:"evaluations,omitempty"`
	// Idle lists the queues that no worker polls.
	Idle []string `json:"idle_queues,omitempty"`
	// Blocked has the activities that are tried again and again, with the reasons.
	Blocked []runstate.Blockage `json:"blocked,omitempty"`
	// Absent lists the services that are not up and without which agents wait.
	Absent  []record.Role `json:"absent_services,omitempty"`
	Warning string        `json:"warning,omitempty"`
	// Warnings say what is wrong with how the run learns, or learned.
	Warnings []string `json:"warnings,omitempty"`

	// canRetry is true if the run can go on once the cause of its end is fixed. lost is
	// true if it could, but Temporal does not have its workflow.
	canRetry, lost bool
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{Status{}} }

// Run prints the status of a run.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	out, err := read(ctx, s, t, c.Run_, c.Records)
	if err != nil {
		return err
	}
	out = out.Placed(s.Place())
	if c.JSON {
		return t.JSON(out)
	}
	return out.print(t, s.Place())
}

// Placed returns the status with the place in the commands that its texts show: those of
// workflows and of the record have none.
func (s Status) Placed(place shell.Place) Status {
	s.Error, s.Warning, s.Warnings = place.Complete(s.Error), place.Complete(s.Warning), place.CompleteAll(s.Warnings)
	s.Blocked = slices.Clone(s.Blocked)
	for i, b := range s.Blocked {
		s.Blocked[i].Failure = place.Complete(b.Failure)
	}
	if s.Progress != nil {
		p := *s.Progress
		p.Subject, p.Warnings = place.Complete(p.Subject), place.CompleteAll(p.Warnings)
		s.Progress = &p
	}
	return s
}

// read asks the store first, which answers always, and then Temporal.
func read(ctx context.Context, s *state.Flags, t *terminal.Terminal, name string, r state.RecordFlags) (Status, error) {
	records, err := s.OpenRecords(ctx, t, r)
	if err != nil {
		return Status{}, err
	}
	defer records.Close()
	run, err := records.Store.Run(ctx, name)
	if errors.Is(err, record.ErrNotFound) {
		if out, ok := unrecorded(ctx, s, t, name); ok {
			return out, nil
		}
	}
	if err != nil {
		return Status{}, fmt.Errorf("run %s: %w", name, err)
	}
	scarce, full := s.SpaceWarning()
	if run.Status == record.Running && full {
		return Status{Run: name, Status: run.Status, Warning: scarce}, nil // Temporal can't write either, and does not answer
	}
	run, temporal, doubt := live(ctx, s, t, run)
	if temporal != nil {
		defer temporal.Close()
	}
	out := Status{Run: name, Status: run.Status, Error: run.Failure().Error, Warning: doubt, canRetry: run.CanRetry()}
	if sp, err := records.Catalog.Spec(ctx, name); err == nil && run.Status != record.Refused { // nothing was decided for that
		out.Isolation, out.IsolationReason = sp.Agent.Isolation()
	}
	out.lost = out.canRetry && temporal != nil && isLost(ctx, temporal, run)
	if out.Collected, err = records.Store.CollectedVersions(ctx, name, model.DefaultPolicy); err != nil {
		return out, err
	}
	if err := out.readEvaluations(ctx, records, run); err != nil {
		return out, err
	}
	usage, err := records.Store.Usage(ctx, name, model.DefaultPolicy)
	if err != nil {
		return out, err
	}
	out.Usage = &usage
	if run.Status != record.Running || doubt != "" {
		return out, out.readRecords(ctx, records, run)
	}
	out.Warning = scarce
	sp, err := records.Catalog.Spec(ctx, name)
	if err != nil {
		return out, err
	}
	var services runstate.Leases // the services of a stack are in one process and hold none
	if r.Store != "" {
		services = records.Store
	}
	progress, found, failed, err := runstate.Ask(ctx, temporal, name, sp.Agent.Queue, services)
	if err != nil {
		return out, err
	}
	out.Progress, out.Idle, out.Blocked, out.Absent = progress, found.Idle, found.Blocked, found.Absent
	if failed != nil {
		out.Warning = fmt.Sprintf("the run does not answer: %v", failed)
		return out, nil
	}
	out.Warnings, out.Stop = out.Progress.Warnings, out.Progress.Stop
	if progress.Budget != nil {
		spent, err := records.Store.Spent(ctx, name)
		if err != nil {
			return out, err
		}
		out.Spent = &Spent{spent, time.Since(run.Created).Hours()}
	}
	if out.Only != "" {
		out.Evaluated = &out.Progress.Rollouts
	}
	return out, nil
}

// readRecords adds what the records say of a run whose workflow is not asked.
func (s *Status) readRecords(ctx context.Context, records fleet.Records, run record.Run) error {
	if run.Status == record.Refused {
		return nil // it never began, and its spec may be anything
	}
	steps, err := records.Store.Steps(ctx, run.Name, model.DefaultPolicy)
	if err != nil {
		return err
	}
	if text := record.UntaughtBy(steps).Text(); text != "" {
		s.Warnings = []string{text}
	}
	sp, err := records.Catalog.Spec(ctx, run.Name)
	if err != nil {
		return err
	}
	s.Progress, err = ended(ctx, records.Store, run, sp, steps)
	if err == nil {
		s.Stop = s.Progress.Stop
	}
	return err
}

// isLost reports whether Temporal does not know the workflow of a run.
func isLost(ctx context.Context, c client.Client, run record.Run) bool {
	_, err := c.DescribeWorkflowExecution(ctx, run.WorkflowID, "")
	var unknown *serviceerror.NotFound
	return errors.As(err, &unknown)
}

// readEvaluations adds the recorded evaluations.
func (s *Status) readEvaluations(ctx context.Context, records fleet.Records, run record.Run) error {
	if run.Status == record.Refused {
		return nil // its spec may be anything
	}
	sp, err := records.Catalog.Spec(ctx, run.Name)
	if err != nil {
		return err
	}
	s.Only = sp.Evaluation.Only
	if sp.Optimizer != nil {
		s.Budget = &sp.Optimizer.Budget
	}
	all, err := records.Store.Evaluations(ctx, run.Name)
	if err != nil {
		return err
	}
	s.Evaluations, err = report.Evaluations(ctx, records.Store, all, sp)
	return err
}

// unrecorded returns the status of a run that Temporal knows and the store does not: a
// run that has just started, that no worker has prepared yet, or that was refused before
// it was recorded.
func unrecorded(ctx context.Context, s *state.Flags, t *terminal.Terminal, name string) (Status, bool) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	c, err := s.Dial(ctx, t)
	if err != nil {
		return Status{}, false
	}
	defer c.Close()
	run, err := Unrecorded(ctx, c, name)
	if err != nil {
		return Status{}, false
	}
	out := Status{Run: name, Status: run.Status, Error: run.Failure().Error, canRetry: run.CanRetry()}
	var phases workflows.PhasesProgress
	if kind, err := typeOf(ctx, c, name); err == nil && kind == workflows.TypePhases {
		if err := runstate.Query(ctx, c, name, &phases); err != nil {
			out.Warning = fmt.Sprintf("the phases do not answer: %v", err)
		}
		out.Phases = phases.Phases
		out.canRetry = run.Status != record.Running && slices.ContainsFunc(phases.Phases, func(p workflows.PhaseProgress) bool { return p.Retry || p.Status == record.Running })
		if run.Status == record.Running {
			out.Blocked, _ = runstate.Blockages(ctx, c, name) // unknown is as good as none here
		}
		return out, true
	}
	if run.Status == record.Running {
		out.Warning = "it has started, but the store has no record of it yet"
		out.Idle, _ = runstate.IdleQueues(ctx, c, workflows.QueueRollout) // unknown is as good as none here
	}
	return out, true
}

// Unrecorded returns a run with what its workflow tells about it.
func Unrecorded(ctx context.Context, c client.Client, name string) (record.Run, error) {
	d, err := c.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return record.Run{}, fmt.Errorf("find run %s: %w", name, err)
	}
	switch kind := d.WorkflowExecutionInfo.GetType().GetName(); kind {
	case workflows.TypeTraining, workflows.TypePrompts, workflows.TypePhases:
	default:
		return record.Run{}, fmt.Errorf("%s is a %s, not a run", name, kind)
	}
	return runstate.Of(ctx, c, record.Run{Name: name, WorkflowID: name, ExecutionID: d.WorkflowExecutionInfo.FirstRunId, Status: record.Running})
}

// typeOf returns the type of a workflow.
func typeOf(ctx context.Context, c client.Client, id string) (string, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return "", fmt.Errorf("find workflow %s: %w", id, err)
	}
	return d.WorkflowExecutionInfo.GetType().GetName(), nil
}

// liveTimeout limits the time to ask Temporal. After that, the record is used.
const liveTimeout = 10 * time.Second

// live returns a run with its status in Temporal, and the connection to Temporal, which
// is nil if there is none. If Temporal can't be asked about a run that is recorded as
// running, doubt says why, and the run is idle if there is no Temporal. For a run that has
// ended, the record suffices.
func live(ctx context.Context, s *state.Flags, t *terminal.Terminal, r record.Run) (run record.Run, c client.Client, doubt string) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	c, err := s.Dial(ctx, t)
	if err != nil {
		if r.Status != record.Running {
			return r, nil, ""
		}
		r.Idle = true
		return r, nil, fmt.Sprintf("nothing runs it at the moment: %v", err)
	}
	if run, err = runstate.Of(ctx, c, r); err != nil && r.Status == record.Running {
		doubt = fmt.Sprintf("Temporal does not say whether it still runs: %v", err)
	}
	return run, c, doubt
}

// liveAll does what live does, for a list of runs.
func liveAll(ctx context.Context, s *state.Flags, t *terminal.Terminal, runs []record.Run) ([]record.Run, string) {
	going := false
	for _, r := range runs {
		going = going || r.Status == record.Running
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	c, err := s.Dial(ctx, t)
	if err == nil {
		defer c.Close()
		runs, err = runstate.All(ctx, c, runs)
	}
	if err == nil || !going {
		return runs, ""
	}
	return runs, fmt.Sprintf("Temporal does not answer, so this is what the store says: %v", err)
}

// LiveStore is a store whose runs have the status that Temporal has.
type LiveStore struct {
	*store.Store
	State    *state.Flags
	Terminal *terminal.Terminal
}

// Run returns the run of that name. If Temporal can't be asked about a run that is
// recorded as running, it tells the terminal why.
func (l LiveStore) Run(ctx context.Context, name string) (record.Run, error) {
	r, err := l.Store.Run(ctx, name)
	if err != nil {
		return r, err
	}
	r, c, doubt := live(ctx, l.State, l.Terminal, r)
	if c != nil {
		c.Close()
	}
	if doubt != "" {
		fmt.Fprintf(l.Terminal.Err, "fulgurite: run %s: %s\n", name, doubt)
	}
	return r, nil
}

// ended returns the progress of a run that has ended, or whose workflow can't be asked,
// from its records: those of its steps, evaluations and attempts. A workflow that has
// ended answers only as long as Temporal keeps it and a worker is there.
func ended(ctx context.Context, db *store.Store, run record.Run, sp spec.Spec, steps []record.Step) (*workflows.Progress, error) {
	p := workflows.Progress{
		Run: run.Name, Phase: phaseOf(run.Status), Stop: run.Stop(),
		Steps: stepsOf(sp, run),
	}
	var result workflows.TrainingResult
	if len(run.Result) > 0 && json.Unmarshal(run.Result, &result) == nil { // a failure has other keys
		p.Before, p.After = result.Before, result.After
		p.Search, p.SearchEnd = result.Search, result.SearchEnd
	}
	if sp.Optimizer != nil && p.Search == nil {
		found, err := promptsearch.Read(ctx, db, run.Name)
		if err != nil {
			return nil, err
		}
		progress := found.Progress()
		p.Search = &progress
	}
	var err error
	if sp.Promotion.Alone {
		p.Policies, err = PromotedPolicies(ctx, db, run.Name, sp)
	} else {
		p.Promoted, err = promotedOf(ctx, db, run.Name, promptsearch.PolicyOf(run))
	}
	if err != nil {
		return nil, err
	}
	switch {
	case run.Status == record.Running:
		p.Subject = "Temporal can't be asked"
	case run.Failure().Error != "":
		p.Subject = run.Failure().Error
	default:
		p.Subject = p.PromotedText() + " is promoted"
	}
	if err := addCurve(ctx, db, &p, steps); err != nil {
		return nil, err
	}
	p.Started = p.Step
	return &p, addTotals(ctx, db, &p)
}

// promotedOf returns the promoted version of a policy, 0 if there is none.
func promotedOf(ctx context.Context, db *store.Store, run, policy string) (int, error) {
	moved, err := db.Promoted(ctx, run, policy)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return 0, fmt.Errorf("read the promoted version: %w", err)
	}
	return moved.Version, nil
}

// PromotedPolicies returns the promoted version of each policy of a run that promotes each
// alone.
func PromotedPolicies(ctx context.Context, db *store.Store, run string, of spec.Spec) (map[string]int, error) {
	out := map[string]int{}
	for _, name := range of.PolicyNames() {
		version, err := promotedOf(ctx, db, run, name)
		if err != nil {
			return nil, err
		}
		out[name] = version
	}
	return out, nil
}

// stepsOf returns how many steps a run has. A search for prompts has none.
func stepsOf(sp spec.Spec, run record.Run) int {
	if sp.Optimizer != nil {
		return 0
	}
	return sp.Training.Total(run.Splits[record.Train].Count)
}

// phaseOf returns the phase in which a run with a status is.
func phaseOf(s record.Status) workflows.Phase {
	switch s {
	case record.Completed, record.Stopped:
		return workflows.PhaseFinished
	case record.Cancelled:
		return workflows.PhaseCancelled
	case record.Running:
		return workflows.PhaseUnknown
	}
	return workflows.PhaseFailed
}

// addCurve adds the finished steps.
func addCurve(ctx context.Context, db *store.Store, p *workflows.Progress, steps []record.Step) error {
	evaluations, err := db.Evaluations(ctx, p.Run)
	if err != nil {
		return fmt.Errorf("read the evaluations: %w", err)
	}
	gate := map[int]float64{}
	for _, e := range evaluations {
		if e.Kind == record.Gate {
			gate[e.Version] = e.Mean
		}
	}
	for _, s := range steps {
		point := workflows.CurvePoint{Step: s.Step, Reward: s.Metrics["reward/mean"]}
		if mean, ok := gate[s.Step]; ok {
			point.Gate = &mean
		}
		p.Curve, p.Step = append(p.Curve, point), s.Step
	}
	return nil
}

// addTotals counts what the finished steps did, and the tasks that were quarantined.
func addTotals(ctx context.Context, db *store.Store, p *workflows.Progress) error {
	trials, err := db.Trials(ctx, p.Run, model.DefaultPolicy)
	if err != nil {
		return fmt.Errorf("read the attempts: %w", err)
	}
	for _, t := range trials {
		trained := (t.Kind == record.Train || t.Kind == record.Reserve) && t.Step <= p.Step
		if !trained || t.Outcome != record.OutcomeCompleted && t.Outcome != record.AgentFailed {
			continue
		}
		p.Calls += t.Calls
		p.Tokens += t.Tokens
		if t.Outcome == record.AgentFailed {
			p.Failed++
		}
	}
	quarantines, err := db.Quarantines(ctx, p.Run, model.DefaultPolicy)
	if err != nil {
		return fmt.Errorf("read the quarantined tasks: %w", err)
	}
	tasks := map[int]bool{}
	for _, q := range quarantines {
		if q.Step <= p.Step {
			tasks[q.Index] = true
		}
	}
	p.Quarantined = len(tasks)
	return nil
}

// print writes the status for people, with its texts placed. place is where the commands
// that are shown find the run.
func (s Status) print(t *terminal.Terminal, place shell.Place) error {
	t.Printf("Run %s: %s\n", s.Run, s.headline())
	switch {
	case s.Stop == nil:
	case s.Status == record.Running && s.Budget != nil:
		t.Printf("  stopping, %s; the search ends with the best candidate so far\n", terminal.Escape(s.Stop.Text()))
	case s.Status == record.Running:
		t.Printf("  stopping, %s; it ends after step %d of %d\n", terminal.Escape(s.Stop.Text()), s.Stop.After, s.Stop.Of)
	default:
		t.Printf("  %s\n", terminal.Escape(s.Stop.Text()))
	}
	if s.Error != "" {
		t.Printf("  %s\n", s.Error)
	}
	switch {
	case s.lost:
		t.Printf("  its workflow is no longer in Temporal, so it can't go on: start its spec under another name\n")
	case s.canRetry:
		t.Printf("  once the cause is fixed: `%s`\n", place.Command("retry", s.Run))
	}
	if s.Progress != nil {
		s.printProgress(t, place)
	}
	if len(s.Phases) > 0 {
		if err := PrintPhases(t, s.Phases); err != nil {
			return err
		}
	}
	if s.Isolation != "" {
		t.Printf("  its agents are %s\n", report.IsolationText(s.Isolation, s.IsolationReason))
	}
	s.printUsage(t)
	if s.Spent != nil {
		t.Printf("  budget: %s\n", s.Spent.of(*s.Progress.Budget))
	}
	for _, text := range s.Warnings {
		t.Printf("  warning: %s\n", terminal.Escape(text))
	}
	if n := len(s.Evaluations); n > 0 {
		e := s.Evaluations[n-1]
		t.Printf("  version %d on the %s split: %.3f ± %.3f\n", e.Version, e.Kind, e.Mean, e.StdError)
		if e.Pass != nil {
			if err := e.Pass.WriteText(t.Out, "    "); err != nil {
				return err
			}
		}
	}
	if text := report.CollectedText(s.Collected); text != "" {
		t.Printf("  versions %s\n", text)
	}
	obstacles := runstate.Obstacles{Idle: s.Idle, Blocked: s.Blocked, Absent: s.Absent}.Lines()
	for _, text := range obstacles {
		t.Printf("  %s\n", terminal.Escape(text))
	}
	if len(obstacles) > 0 {
		t.Printf("  once that is mended it goes on by itself; `%s` ends it\n", place.Command("stop", s.Run, "--now"))
	}
	if s.Warning != "" {
		t.Printf("  %s\n", s.Warning)
	}
	return nil
}

// headline returns the status in a few words.
func (s Status) headline() string {
	switch {
	case s.Stop != nil && s.Status == record.Running:
		return "stopping"
	case s.Stop != nil && s.Status == record.Stopped && s.Budget == nil:
		return fmt.Sprintf("stopped at %d of %d", s.Stop.After, s.Stop.Of)
	}
	return string(s.Status)
}

func (s Status) printProgress(t *terminal.Terminal, place shell.Place) {
	p := s.Progress
	step := fmt.Sprintf("step %d of %d, %s is promoted", p.Step, p.Steps, p.PromotedText())
	switch {
	case s.Budget != nil:
		s.printSearch(t)
	case s.Only != "" && s.Evaluated != nil:
		t.Printf("  %s (%s), %d of %s\n", p.Phase, p.Subject, s.Evaluated.Done, readable.Count(s.Evaluated.Total, "rollout"))
	case s.Only != "":
	case s.Status != record.Running || p.Phase == workflows.PhaseUnknown: // the rest is said already
		t.Printf("  %s\n", step)
	default:
		t.Printf("  %s (%s), %s\n", p.Phase, p.Subject, step)
	}
	switch {
	case p.Phase == workflows.PhaseRollouts:
		t.Printf("  %d of %s, %s\n", p.Rollouts.Done, readable.Count(p.Rollouts.Total, "rollout"), readable.Count(p.StepTokens, "token"))
	case p.Phase == workflows.PhaseEvaluation && s.Only == "" && p.Rollouts.Total > 0:
		t.Printf("  %d of %s\n", p.Rollouts.Done, readable.Count(p.Rollouts.Total, "rollout"))
	}
	if p.Curriculum != "" {
		t.Printf("  its tasks: %s\n", terminal.Escape(p.Curriculum))
	}
	if pace := p.PaceText(time.Now()); pace != "" {
		t.Printf("  %s\n", pace)
	}
	if n := len(p.Curve); n > 0 {
		t.Printf("  reward of step %d: %.3f\n", p.Curve[n-1].Step, p.Curve[n-1].Reward)
	}
	if p.Paused {
		t.Printf("  paused: `%s` goes on\n", place.Command("resume", s.Run))
	}
	if p.Pending != nil {
		t.Printf("  version %d waits for `%s` or `%s`\n", p.Pending.Decision.Candidate, place.Command("approve", s.Run), place.Command("reject", s.Run))
	}
	if p.Quarantined > 0 {
		t.Printf("  %s: `%s` says why\n", readable.Are(p.Quarantined, "task", "quarantined"), place.Command("report", s.Run))
	}
}

// printSearch tells how far a search for prompts has come.
func (s Status) printSearch(t *terminal.Terminal) {
	p := s.Progress
	if s.Status == record.Running && p.Phase != workflows.PhaseUnknown {
		t.Printf("  %s (%s), version %d of the prompts is promoted\n", p.Phase, p.Subject, p.Promoted)
	} else {
		t.Printf("  version %d of the prompts is promoted\n", p.Promoted)
	}
	if p.Search == nil {
		return
	}
	best := ""
	if p.Search.Best != nil {
		best = fmt.Sprintf(", the best %.3f on validation", *p.Search.Best)
	}
	t.Printf("  %s, %s measured%s, %s refused\n", readable.Count(p.Search.Proposals, "proposal"), readable.Count(p.Search.Candidates, "candidate"),
		best, readable.Count(p.Search.Refused, "reply"))
	t.Printf("  spent: %s\n", promptsearch.SpentText(p.Search.Spent, *s.Budget))
	if e := p.SearchEnd; e != nil {
		t.Printf("  the search ended: %s\n", promptsearch.EndText(e.Reason, e.Purpose))
	}
}

// Spent is what a run has used so far.
type Spent struct {
	record.Spent
	// Hours is the time since the run was started.
	Hours float64 `json:"hours"`
}

// of says how much of a budget is used.
func (s Spent) of(b spec.Budget) string {
	var parts []string
	if b.Tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s", s.Tokens, readable.Count(b.Tokens, "token")))
	}
	if b.Calls > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s", s.Calls, readable.Count(b.Calls, "call")))
	}
	if b.Hours > 0 {
		parts = append(parts, fmt.Sprintf("%.2f of %g hours", s.Hours, b.Hours))
	}
	return strings.Join(parts, ", ")
}

// printUsage tells what all attempts took.
func (s Status) printUsage(t *terminal.Terminal) {
	u, until := s.Usage, "in all"
	if u == nil {
		return
	}
	if s.Status == record.Running {
		until = "so far"
	}
	t.Printf("  %s: %s, %s, %s whose agent failed\n", until, readable.Count(u.Calls, "model call"), readable.Count(u.Tokens, "token"), readable.Count(u.AgentFailed, "attempt"))
}
