package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/provenance"
	"github.com/fulgurite/fulgurite/tasks"
)

// TaskReport says what a task had left. The keys of its JSON are a public contract.
type TaskReport struct {
	Task string `json:"task"`
	// Runs are those that have ended, the oldest first.
	Runs []record.ForgottenTaskReport `json:"runs"`
	// UnderWay are runs that have not ended and have the task. Nothing of them is removed.
	UnderWay []string `json:"under_way"`
	// Already are runs from which the task was removed before.
	Already []string `json:"already"`
	DryRun  bool     `json:"dry_run"`
}

// replacedInput is the input of a task that was forgotten, in a snapshot that keeps the
// places of the other tasks.
const replacedInput = "forgotten"

// leastText is how many bytes a text of a task needs, so that a history with it is taken for
// one that tells of the task: shorter ones are anywhere.
const leastText = 8

// leastMessage is how many bytes a line of an error, of a verdict or of printed output needs:
// the short ones, such as "incorrect", are those of other tasks, too.
const leastMessage = 16

// storedTaskReport is what the tombstone of a task holds: the report, and what an interrupted
// removal needs to go on.
type storedTaskReport struct {
	record.ForgottenTaskReport
	// Replaced has the snapshot without the task for each snapshot that had it.
	Replaced map[string]string `json:"replaced"`
	// Files are the blobs that have something of the task.
	Files []string `json:"files"`
	// Places are the indices of the task in the train split.
	Places []int `json:"places"`
	// Rewritten says that the result of the run had a text of the task.
	Rewritten bool `json:"rewritten"`
	// Workflows are the ids of workflows whose histories are deleted.
	Workflows []string `json:"workflows"`
}

// ForgetTask removes what the task with an id left in all runs that have ended, or in one
// of them. What was removed before is no error. On a dry run it changes nothing.
func (f *Forgetter) ForgetTask(ctx context.Context, task, in, by, reason string, dryRun bool) (TaskReport, error) {
	out := TaskReport{Task: task, Runs: []record.ForgottenTaskReport{}, UnderWay: []string{}, Already: []string{}, DryRun: dryRun}
	found, err := f.runsWith(ctx, task, in)
	if err != nil {
		return out, err
	}
	var ended []record.Run
	for _, r := range found {
		switch done, err := f.forgotten(ctx, r.Name, task); {
		case err != nil:
			return out, err
		case done != nil && !done.Ended.IsZero():
			out.Already = append(out.Already, r.Name)
		case r.Status == record.Running:
			out.UnderWay = append(out.UnderWay, r.Name)
		default:
			ended = append(ended, r)
		}
	}
	switch {
	case len(ended) > 0 || len(out.Already) > 0:
	case len(out.UnderWay) > 0:
		return out, fmt.Errorf("%w: task %q is in runs that have not ended (%s): stop them first", ErrRefused, task, strings.Join(out.UnderWay, ", "))
	case in != "":
		return out, fmt.Errorf("%w: run %s has no task with the id %q", record.ErrNotFound, in, task)
	default:
		return out, fmt.Errorf("%w: no run has a task with the id %q", record.ErrNotFound, task)
	}
	for _, r := range ended { // before anything changes
		if err := f.removable(ctx, r); err != nil {
			return out, err
		}
		if err := f.noneBegun(ctx, r.Name, task); err != nil {
			return out, err
		}
	}
	for _, r := range ended {
		report, err := f.forgetTaskIn(ctx, r, task, by, reason, ended, dryRun)
		if err != nil {
			return out, fmt.Errorf("forget task %q in run %s: %w", task, r.Name, err)
		}
		out.Runs = append(out.Runs, report)
	}
	return out, nil
}

// runsWith returns the runs with the task, the oldest first: those with attempts on it,
// those whose snapshots have it, and those in which its removal was interrupted.
func (f *Forgetter) runsWith(ctx context.Context, task, in string) ([]record.Run, error) {
	var runs []record.Run
	var err error
	if in != "" {
		var one record.Run
		one, err = f.Store.Run(ctx, in)
		runs = []record.Run{one}
	} else {
		runs, err = f.Store.Runs(ctx)
	}
	if err != nil {
		return nil, err
	}
	attempted, err := f.attempted(ctx, task, in)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{} // by the digest of the snapshot
	var out []record.Run
	for _, r := range slices.Backward(runs) {
		if r.Status == record.Forgetting {
			continue // all of it goes
		}
		has := slices.Contains(attempted, r.Name)
		if !has {
			if has, err = f.snapshotsHave(ctx, r, task, known); err != nil {
				return nil, err
			}
		}
		if !has {
			begun, err := f.forgotten(ctx, r.Name, task)
			if err != nil {
				return nil, err
			}
			has = begun != nil
		}
		if has {
			out = append(out, r)
		}
	}
	return out, nil
}

// attempted returns the runs with an attempt on the task, or the one that in names if it has
// one.
func (f *Forgetter) attempted(ctx context.Context, task, in string) ([]string, error) {
	if in == "" {
		return f.Store.RunsOnTask(ctx, task)
	}
	all, err := f.Store.AttemptsOnTask(ctx, in, task)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return []string{in}, nil
}

func (f *Forgetter) snapshotsHave(ctx context.Context, r record.Run, task string, known map[string]bool) (bool, error) {
	for _, kind := range slices.Sorted(maps.Keys(r.Splits)) {
		digest := r.Splits[kind].Digest
		has, ok := known[digest]
		if !ok {
			list, err := f.snapshot(ctx, digest)
			if err != nil && !errors.Is(err, record.ErrNotFound) {
				return false, fmt.Errorf("tasks of split %s of run %s: %w", kind, r.Name, err)
			}
			has = slices.ContainsFunc(list, func(t tasks.Task) bool { return t.ID == task })
			known[digest] = has
		}
		if has {
			return true, nil
		}
	}
	return false, nil
}

func (f *Forgetter) snapshot(ctx context.Context, digest string) ([]tasks.Task, error) {
	data, err := f.Blobs.Get(ctx, digest)
	if err != nil {
		return nil, err
	}
	return tasks.Decode(data)
}

// forgotten returns the tombstone of a task in a run, nil if there is none.
func (f *Forgetter) forgotten(ctx context.Context, run, task string) (*record.Forgotten, error) {
	all, err := f.Store.Forgotten(ctx, run)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if one.What == record.ForgottenTask && one.Task == task {
			return &one, nil
		}
	}
	return nil, nil
}

// noneBegun returns an error if the removal of a task other than this one was interrupted in
// a run. It has to end first: its tombstone names the snapshots of the run that it replaces,
// and another removal replaces the same ones.
func (f *Forgetter) noneBegun(ctx context.Context, run, task string) error {
	all, err := f.Store.Forgotten(ctx, run)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.What == record.ForgottenTask && one.Task != task && one.Ended.IsZero() {
			return fmt.Errorf("%w: run %s: the removal of its task %q has begun and not ended: `%s` ends it", ErrRefused, run, one.Task,
				shell.Command("forget", "--task", one.Task, "--in", run, "--yes"))
		}
	}
	return nil
}

// forgetTaskIn removes what a task left in a run. The order matters: what is found by the
// texts of the task comes before these go, and the tombstone has all that is found by
// something that goes earlier. ended are the runs from which this call removes the task.
func (f *Forgetter) forgetTaskIn(ctx context.Context, run record.Run, task, by, reason string, ended []record.Run, dryRun bool) (record.ForgottenTaskReport, error) {
	stone, err := f.forgotten(ctx, run.Name, task)
	if err != nil {
		return record.ForgottenTaskReport{}, err
	}
	var plan storedTaskReport
	attempts, err := f.Store.AttemptsOnTask(ctx, run.Name, task)
	if err != nil {
		return plan.ForgottenTaskReport, err
	}
	if stone == nil {
		if plan, err = f.planTask(ctx, run, task, attempts, ended, dryRun); err != nil || dryRun {
			return plan.ForgottenTaskReport, err
		}
		text, err := json.Marshal(plan)
		if err != nil {
			return plan.ForgottenTaskReport, fmt.Errorf("encode its report: %w", err)
		}
		begun, _, err := f.Store.BeginForgetting(ctx, run, record.Forgotten{Run: run.Name, What: record.ForgottenTask, Task: task, By: by, Reason: reason, Report: text})
		if errors.Is(err, record.ErrConflict) {
			return plan.ForgottenTaskReport, fmt.Errorf("%w: %w: give the command again", ErrRefused, err)
		}
		if err != nil {
			return plan.ForgottenTaskReport, err
		}
		stone = &begun
	}
	if err := json.Unmarshal(stone.Report, &plan); err != nil {
		return plan.ForgottenTaskReport, fmt.Errorf("decode its report: %w", err)
	}
	if dryRun {
		return plan.ForgottenTaskReport, nil
	}
	if _, err := f.Histories.Delete(ctx, run, func(id string) bool { return below(id, plan.Workflows) }); err != nil {
		return plan.ForgottenTaskReport, err
	}
	if err := f.removeArchive(ctx, run.Name); err != nil {
		return plan.ForgottenTaskReport, err
	}
	if err := f.removeRecords(ctx, run, plan, attempts); err != nil {
		return plan.ForgottenTaskReport, err
	}
	if err := f.replaceSnapshots(ctx, run, plan); err != nil {
		return plan.ForgottenTaskReport, err
	}
	stone.Ended = time.Now()
	return plan.ForgottenTaskReport, f.Store.EndForgetting(ctx, *stone)
}

// removeArchive removes the archived histories of a run whole: some are of the task's rollouts,
// and others may have its texts. The histories that Temporal keeps have none of it, and are
// archived anew once the removal has ended.
func (f *Forgetter) removeArchive(ctx context.Context, run string) error {
	digests, err := f.Store.BeginRemovingArchive(ctx, run)
	if err != nil {
		return err
	}
	if len(digests) > 0 {
		needed, err := f.needsOfOthers(ctx, run, false)
		if err != nil {
			return err
		}
		if err := f.removeUnneeded(ctx, run, digests, needed); err != nil {
			return err
		}
	}
	return f.Store.EndRemovingArchive(ctx, run)
}

// below reports whether a workflow is one of those with these ids, or was started by one: its
// id then begins with theirs. A run's own workflow, whose id has no slash, does not stand for
// what it has started.
func below(id string, ids []string) bool {
	return slices.ContainsFunc(ids, func(of string) bool {
		return id == of || strings.Contains(of, "/") && strings.HasPrefix(id, of+"/")
	})
}

// planTask finds all that a task left in a run. Unless it is a dry run, it stores the
// snapshots without the task.
func (f *Forgetter) planTask(ctx context.Context, run record.Run, task string, attempts []record.Address, ended []record.Run, dryRun bool) (storedTaskReport, error) {
	p := storedTaskReport{
		ForgottenTaskReport: record.ForgottenTaskReport{Run: run.Name, Task: task, Splits: []record.Kind{}, Steps: []int{}, Versions: []string{}, Left: []string{}, Attempts: len(attempts)},
		Replaced:            map[string]string{}, Files: []string{}, Workflows: []string{}, Places: []int{},
	}
	texts, err := f.planSnapshots(ctx, run, task, &p, dryRun)
	if err != nil {
		return p, err
	}
	for _, address := range attempts {
		a, err := f.Store.Attempt(ctx, address)
		if err != nil {
			return p, err
		}
		p.Calls, p.Tokens = p.Calls+a.Calls, p.Tokens+a.Tokens
		texts = append(texts, textsIn(a.Result, leastText)...)
		printed, err := f.Store.Output(ctx, address)
		if err != nil {
			return p, err
		}
		for _, text := range []string{a.Error, a.Verdict, printed.Stdout, printed.Stderr} {
			texts = append(texts, textsIn(text, leastMessage)...)
		}
		if id := fmt.Sprintf("%s/%s-%d/%d", run.Name, address.Kind, address.Step, address.Task); !slices.Contains(p.Workflows, id) { // as TrainingWorkflow names its children
			p.Workflows = append(p.Workflows, id)
		}
	}
	quarantines, err := f.Store.Quarantines(ctx, run.Name, model.DefaultPolicy)
	if err != nil {
		return p, err
	}
	for _, q := range quarantines {
		if slices.Contains(p.Places, q.Index) {
			texts = append(texts, textsIn(q.Reason, leastMessage)...)
		}
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	if err := f.planBatches(ctx, run.Name, attempts, &p); err != nil {
		return p, err
	}
	others, err := f.Histories.Containing(ctx, run, texts)
	if err != nil {
		return p, err
	}
	for _, id := range others {
		if !below(id, p.Workflows) {
			p.Workflows = append(p.Workflows, id)
		}
	}
	p.Histories = len(p.Workflows)
	archive, err := f.Store.Archive(ctx, run.Name)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return p, err
	}
	p.Archive = archive.Bytes
	p.Rewritten = run.Failure().Error != "" && containsAny(string(run.Result), texts)
	return p, f.planLeft(ctx, run, texts, ended, &p)
}

// planSnapshots finds the snapshots with the task, and returns the texts of the task.
func (f *Forgetter) planSnapshots(ctx context.Context, run record.Run, task string, p *storedTaskReport, dryRun bool) (texts []string, err error) {
	for _, kind := range slices.Sorted(maps.Keys(run.Splits)) {
		digest := run.Splits[kind].Digest
		list, err := f.snapshot(ctx, digest)
		if err != nil {
			return nil, fmt.Errorf("tasks of split %s: %w", kind, err)
		}
		at := slices.IndexFunc(list, func(t tasks.Task) bool { return t.ID == task })
		if at < 0 {
			continue
		}
		p.Splits = append(p.Splits, kind)
		if kind == record.Train {
			p.Places = append(p.Places, at)
		}
		texts = append(texts, textsOf(list[at])...)
		list[at] = tasks.Task{ID: task, Input: replacedInput}
		data, err := tasks.Encode(list)
		if err != nil {
			return nil, err
		}
		if p.Replaced[digest] = ""; !dryRun {
			if p.Replaced[digest], err = f.Blobs.Put(ctx, data); err != nil {
				return nil, fmt.Errorf("store the tasks of split %s without it: %w", kind, err)
			}
		}
	}
	return texts, nil
}

// planBatches finds the steps whose batches have an attempt on the task, and the files that
// were made from these attempts.
func (f *Forgetter) planBatches(ctx context.Context, run string, attempts []record.Address, p *storedTaskReport) error {
	trained, steps := map[string]bool{}, map[int]bool{}
	for _, a := range attempts {
		if a.Kind == record.Train || a.Kind == record.Reserve {
			trained[a.String()], steps[a.Step] = true, true
		}
	}
	found, err := f.batchesWith(ctx, run, steps, func(b model.Batch) bool {
		return slices.ContainsFunc(b.Trajectories, func(t model.BatchTrajectory) bool { return trained[t.Attempt] })
	})
	if err != nil {
		return err
	}
	p.Steps, p.Files, p.Versions = append(p.Steps, found.steps...), append(p.Files, found.files...), append(p.Versions, found.versions...)
	if unknown := found.unknown; len(unknown) > 0 {
		p.Left = append(p.Left, fmt.Sprintf("whether the %s of %s %s, which went with another task, had it is not known: the versions count as trained on it",
			readable.Name(len(unknown), "batch"), readable.Name(len(unknown), "step"), shownSteps(unknown)))
	}
	return nil
}

// foundBatches are batches that have something.
type foundBatches struct {
	steps    []int
	unknown  []int    // steps whose batch was removed before
	files    []string // the batches, and what was made from them
	versions []string // that were made in these steps, or from such a version
}

// batchesWith finds which of some steps have a batch for which has is true.
func (f *Forgetter) batchesWith(ctx context.Context, run string, steps map[int]bool, has func(model.Batch) bool) (found foundBatches, err error) {
	batches, err := f.Store.Batches(ctx, run, model.DefaultPolicy)
	if err != nil {
		return found, err
	}
	for _, b := range batches {
		if !steps[b.Step] {
			continue
		}
		data, err := f.Blobs.Get(ctx, b.Digest)
		if errors.Is(err, record.ErrNotFound) {
			found.unknown = append(found.unknown, b.Step)
			continue
		}
		if err != nil {
			return found, fmt.Errorf("batch of step %d: %w", b.Step, err)
		}
		content, err := hf.DecodeBatch(data)
		if err != nil {
			return found, fmt.Errorf("batch of step %d: %w", b.Step, err)
		}
		if !has(content) {
			continue
		}
		found.steps = append(found.steps, b.Step)
		derived, err := f.derived(ctx, []string{b.Digest})
		if err != nil {
			return found, err
		}
		found.files = append(append(found.files, derived...), b.Digest)
	}
	if len(found.steps)+len(found.unknown) == 0 {
		return found, nil
	}
	if found.versions, err = (provenance.Walker{Store: f.Store, Blobs: f.Blobs}).MadeFrom(ctx, run, slices.Min(slices.Concat(found.steps, found.unknown))); err != nil {
		return found, err
	}
	r, err := f.Store.Run(ctx, run)
	if err != nil {
		return found, err
	}
	policies, err := policiesOf(r)
	if err != nil {
		return found, err
	}
	for _, policy := range policies {
		versions, err := f.Store.Versions(ctx, run, policy)
		if err != nil {
			return found, err
		}
		for _, v := range versions {
			if v.Scores != "" && slices.Contains(found.steps, v.Number) { // log-probabilities of the batch
				found.files = append(found.files, v.Scores)
			}
		}
	}
	return found, nil
}

// planLeft finds what is not removed although it may tell of the task. ended are the runs from
// which the task is removed in the same call.
func (f *Forgetter) planLeft(ctx context.Context, run record.Run, texts []string, ended []record.Run, p *storedTaskReport) error {
	if !p.Rewritten && containsAny(string(run.Result), texts) {
		p.Left = append(p.Left, "the result of the run has a text of it: forget the whole run")
	}
	answers, err := f.Store.SearchAnswers(ctx, run.Name, 0)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if containsAny(string(a.Answer), texts) {
			p.Left = append(p.Left, fmt.Sprintf("the answer to request %s of the search for prompts has a text of it: forget the whole run", a.Request))
		}
	}
	runs, err := f.Store.Runs(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if slices.ContainsFunc(ended, func(one record.Run) bool { return one.Name == r.Name }) {
			continue
		}
		for _, kind := range slices.Sorted(maps.Keys(r.Splits)) {
			if _, ok := p.Replaced[r.Splits[kind].Digest]; ok {
				p.Left = append(p.Left, fmt.Sprintf("run %s has the same tasks in its split %s, so their snapshot stays until the task is forgotten there, too", r.Name, kind))
			}
		}
	}
	return nil
}

// removeRecords removes the files and rows that the task left.
func (f *Forgetter) removeRecords(ctx context.Context, run record.Run, p storedTaskReport, attempts []record.Address) error {
	_, needed, err := f.candidates(ctx, run.Name)
	if err != nil {
		return err
	}
	if err := f.removeUnneeded(ctx, run.Name, p.Files, needed); err != nil {
		return err
	}
	steps, searched := slices.Clone(p.Steps), false
	for _, a := range attempts {
		if a.Kind == record.Train || a.Kind == record.Reserve {
			steps = append(steps, a.Step)
		}
		searched = searched || a.Kind == record.Minibatch
		if err := f.Store.EmptyAttempt(ctx, a); err != nil {
			return err
		}
	}
	for _, place := range p.Places {
		if err := f.Store.EmptyQuarantines(ctx, run.Name, place); err != nil {
			return err
		}
	}
	slices.Sort(steps)
	for _, step := range slices.Compact(steps) {
		if err := f.Store.RemoveJudgments(ctx, run.Name, step); err != nil {
			return err
		}
	}
	if searched {
		if err := f.Store.RemoveReflections(ctx, run.Name); err != nil {
			return err
		}
	}
	if !p.Rewritten {
		return nil
	}
	failure := run.Failure()
	failure.Error, failure.Detail = "its text was removed, because it told of a task that was forgotten", ""
	return f.Store.SetResult(ctx, run.Name, failure.Result())
}

// replaceSnapshots gives the run snapshots without the task, and removes those with it that
// no other run has.
func (f *Forgetter) replaceSnapshots(ctx context.Context, run record.Run, p storedTaskReport) error {
	splits := maps.Clone(run.Splits)
	for kind, split := range splits {
		if digest, ok := p.Replaced[split.Digest]; ok {
			split.Digest = digest
			splits[kind] = split
		}
	}
	if err := f.Store.SetSplits(ctx, run.Name, splits); err != nil {
		return err
	}
	needed, err := f.needsOfOthers(ctx, run.Name, false)
	if err != nil {
		return err
	}
	return f.removeUnneeded(ctx, run.Name, slices.Sorted(maps.Keys(p.Replaced)), needed)
}

// textsOf returns the texts by which a history is known to tell of a task.
func textsOf(t tasks.Task) []string {
	out := append(textsIn(t.Input, leastText), textsIn(t.Answer, leastText)...)
	return append(out, textsOfValue(t.Metadata)...)
}

// textsOfValue returns the texts of a value that was read from JSON, in lists and objects too.
// Keys, numbers and booleans are those of many tasks.
func textsOfValue(value any) (out []string) {
	switch value := value.(type) {
	case string:
		return textsIn(value, leastText)
	case []any:
		for _, one := range value {
			out = append(out, textsOfValue(one)...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			out = append(out, textsOfValue(value[key])...)
		}
	}
	return out
}

// textsIn returns a text and its lines, those with at least a number of bytes.
func textsIn(text string, least int) (out []string) {
	for _, one := range append([]string{text}, strings.Split(text, "\n")...) {
		if one = strings.TrimSpace(one); len(one) >= least {
			out = append(out, one)
		}
	}
	return out
}

// containsAny reports whether JSON has one of the texts.
func containsAny(data string, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		quoted, err := json.Marshal(text)
		return strings.Contains(data, text) || err == nil && strings.Contains(data, string(quoted[1:len(quoted)-1]))
	})
}
