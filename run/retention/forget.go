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
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/provenance"
	"github.com/fulgurite/fulgurite/spec"
)

// ErrRefused is wrapped when something is not removed, with the reason. Nothing was changed
// then.
var ErrRefused = errors.New("not removed")

// ForgetStore is the part of a store that a Forgetter needs.
type ForgetStore interface {
	Store
	provenance.Store
	RunToForget(ctx context.Context, name string) (record.Run, error)
	BeginForgetting(ctx context.Context, r record.Run, f record.Forgotten) (stored record.Forgotten, created bool, err error)
	EndForgetting(ctx context.Context, f record.Forgotten) error
	Holdings(ctx context.Context, run, policy string) (record.Holdings, error)
	RowsOfRun(ctx context.Context, run string) ([]record.RowCount, error)
	RemoveRows(ctx context.Context, run string) error
	FilesOf(ctx context.Context, run string) (record.NamedFiles, error)
	PromptsOfOthers(ctx context.Context, run string) ([]string, error)
	FilesOfOthers(ctx context.Context, run string) (record.NamedFiles, error)
	WhileOthersNeed(ctx context.Context, run string, at any, f func(added record.NamedFiles) error) error
	AttemptsOnTask(ctx context.Context, run, task string) ([]record.Address, error)
	RunsOnTask(ctx context.Context, task string) ([]string, error)
	Attempt(ctx context.Context, address record.Address) (record.Attempt, error)
	Output(ctx context.Context, address record.Address) (record.Output, error)
	EmptyAttempt(ctx context.Context, a record.Address) error
	Quarantines(ctx context.Context, run, policy string) ([]record.Quarantine, error)
	EmptyQuarantines(ctx context.Context, run string, index int) error
	RemoveJudgments(ctx context.Context, run string, step int) error
	RemoveReflections(ctx context.Context, run string) error
	SearchAnswers(ctx context.Context, run string, from int) ([]record.SearchAnswer, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
	SetSplits(ctx context.Context, run string, splits map[record.Kind]record.Split) error
	SetResult(ctx context.Context, run string, result []byte) error
	BodyBytes(ctx context.Context, run string) (int64, error)
	RemoveBodies(ctx context.Context, run string) error
	Archive(ctx context.Context, run string) (record.Archive, error)
	BeginRemovingArchive(ctx context.Context, run string) (digests []string, err error)
	EndRemovingArchive(ctx context.Context, run string) error
	LastStep(ctx context.Context, run, policy string) (record.Step, error)
	RunsOfUser(ctx context.Context, user string) ([]string, error)
	ConversationsOfUser(ctx context.Context, run, user string) ([]int, error)
	FeedbackOfUser(ctx context.Context, run, user string) ([]string, error)
	Segments(ctx context.Context, run, policy string) ([]record.Segment, error)
	RemoveConversation(ctx context.Context, run string, number int) error
	RemoveFeedbackOf(ctx context.Context, run, user string) error
}

// ForgetBlobs is the part of a blob store that a Forgetter needs.
type ForgetBlobs interface {
	Blobs
	Put(ctx context.Context, data []byte) (string, error)
	Size(digest string) (int64, error)
}

// Histories are those of runs in Temporal.
type Histories interface {
	// Open returns the id of a workflow of the run that is under way, or "".
	Open(ctx context.Context, run record.Run) (id string, err error)
	Count(ctx context.Context, run record.Run) (int, error)
	Delete(ctx context.Context, run record.Run, chosen func(id string) bool) (int, error)
	Containing(ctx context.Context, run record.Run, texts []string) ([]string, error)
}

// Forgetter removes runs, and what tasks and users left in runs, at the request of a person. A removal
// that is interrupted is ended by the next one. Different processes should not remove the
// same run at the same time: they disturb nothing, but their reports are not complete.
type Forgetter struct {
	Store     ForgetStore
	Blobs     ForgetBlobs
	Histories Histories

	expanded  map[string][]string // batch → the files from which it was made; batches never change
	manifests *Collector          // knows what manifests name
}

// RunReport says what a run has, or had before it was removed. The keys of its JSON are a
// public contract.
type RunReport struct {
	Run        string            `json:"run"`
	Status     record.Status     `json:"status"` // before the removal
	SpecDigest string            `json:"spec_digest"`
	Rows       []record.RowCount `json:"rows"`
	// Files and Bytes are the blobs that nothing else needs; KeptFiles are those of the run
	// that something else needs, which stay.
	Files     int   `json:"files"`
	Bytes     int64 `json:"bytes"`
	KeptFiles int   `json:"kept_files"`
	Histories int   `json:"histories"` // executions in Temporal
	// StartedFromIt are the versions of other runs that were made from versions of this run.
	// They stay.
	StartedFromIt []string `json:"started_from_it"`
	DryRun        bool     `json:"dry_run"`
	// Forgotten is the tombstone; zero on a dry run.
	Forgotten *record.Forgotten `json:"forgotten,omitempty"`
}

// PlanRun returns what ForgetRun would remove. It changes nothing.
func (f *Forgetter) PlanRun(ctx context.Context, name string) (RunReport, error) {
	_, report, err := f.planRun(ctx, name)
	return report, err
}

func (f *Forgetter) planRun(ctx context.Context, name string) (run record.Run, report RunReport, err error) {
	if run, err = f.Store.RunToForget(ctx, name); err != nil {
		return run, report, err
	}
	if err := f.removable(ctx, run); err != nil {
		return run, report, err
	}
	if err := f.startsFrom(ctx, name); err != nil {
		return run, report, err
	}
	// A snapshot that an interrupted removal of a task has written is named nowhere else yet.
	if err := f.noneBegun(ctx, name, ""); err != nil {
		return run, report, err
	}
	report = RunReport{Run: name, Status: run.Status, SpecDigest: run.SpecDigest, StartedFromIt: []string{}, DryRun: true}
	if report.Rows, err = f.Store.RowsOfRun(ctx, name); err != nil {
		return run, report, err
	}
	if report.Histories, err = f.Histories.Count(ctx, run); err != nil {
		return run, report, err
	}
	made, err := (provenance.Walker{Store: f.Store, Blobs: f.Blobs}).MadeFrom(ctx, name, 0)
	if err != nil {
		return run, report, err
	}
	for _, v := range made {
		if !strings.HasPrefix(v, name+"@") {
			report.StartedFromIt = append(report.StartedFromIt, v)
		}
	}
	candidates, needs, err := f.candidates(ctx, name)
	if err != nil {
		return run, report, err
	}
	err = divide(taking(candidates), needs, func(digest string, unneeded bool) error {
		size, err := f.Blobs.Size(digest)
		switch {
		case errors.Is(err, record.ErrNotFound):
			return nil
		case err != nil:
			return err
		case unneeded:
			report.Files, report.Bytes = report.Files+1, report.Bytes+size
		default:
			report.KeptFiles++
		}
		return nil
	})
	return run, report, err
}

// removable returns an error if a run has not ended.
func (f *Forgetter) removable(ctx context.Context, run record.Run) error {
	if run.Status == record.Running {
		return fmt.Errorf("%w: run %s has not ended: stop it first", ErrRefused, run.Name)
	}
	open, err := f.Histories.Open(ctx, run)
	if err == nil && open != "" {
		err = fmt.Errorf("%w: run %s: its workflow %s has not ended: terminate it first", ErrRefused, run.Name, open)
	}
	return err
}

// startsFrom returns an error if a run that is under way has yet to read a version of the
// run.
func (f *Forgetter) startsFrom(ctx context.Context, name string) error {
	runs, err := f.Store.Runs(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.Status != record.Running {
			continue
		}
		s, err := spec.Stored(r.Spec)
		if err != nil || s.Model.Version == "" {
			continue
		}
		if from, err := spec.ParseVersion(s.Model.Version); err != nil || from.Run != name {
			continue
		}
		_, err = f.Store.Version(ctx, model.VersionID{Run: r.Name, Policy: model.DefaultPolicy, Number: 0})
		if errors.Is(err, record.ErrNotFound) {
			return fmt.Errorf("%w: run %s starts from %s and has not read it yet: try again when it has a version 0", ErrRefused, r.Name, s.Model.Version)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ForgetRun removes a run that has ended: its rows, its blobs that nothing else needs, and
// its histories. A tombstone stays. For a run that was removed before, it returns the report
// of that removal, so that a caller can repeat what comes after it.
func (f *Forgetter) ForgetRun(ctx context.Context, name, by, reason string) (RunReport, error) {
	run, report, err := f.planRun(ctx, name)
	if errors.Is(err, record.ErrForgotten) {
		if report, ok, failure := f.removedRun(ctx, name); ok || failure != nil {
			return report, failure
		}
	}
	if err != nil {
		return report, err
	}
	report.DryRun = false
	text, err := json.Marshal(report)
	if err != nil {
		return report, fmt.Errorf("encode the report on run %s: %w", name, err)
	}
	stone, created, err := f.Store.BeginForgetting(ctx, run, record.Forgotten{Run: name, What: record.ForgottenRun, By: by, Reason: reason, Report: text})
	if errors.Is(err, record.ErrConflict) {
		return report, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err != nil {
		return report, err
	}
	if !created { // what was found first is what the run had
		if err := json.Unmarshal(stone.Report, &report); err != nil {
			return report, fmt.Errorf("decode the report on run %s: %w", name, err)
		}
	}
	// A run may have been started before the tombstone, and after the plan.
	if err := f.startsFrom(ctx, name); err != nil {
		return report, fmt.Errorf("run %s is marked as forgotten, and what it has is still there: %w", name, err)
	}
	if _, err := f.Histories.Delete(ctx, run, func(string) bool { return true }); err != nil {
		return report, err
	}
	if err := f.removeFiles(ctx, name); err != nil {
		return report, fmt.Errorf("remove the files of run %s: %w", name, err)
	}
	if err := f.Store.RemoveRows(ctx, name); err != nil {
		return report, err
	}
	stone.Ended = time.Now().UTC()
	if err := f.Store.EndForgetting(ctx, stone); err != nil {
		return report, err
	}
	report.Forgotten = &stone
	return report, f.collector().collectRest(ctx)
}

// removedRun returns the report of the removal of a run. ok is false if it has not ended.
func (f *Forgetter) removedRun(ctx context.Context, name string) (report RunReport, ok bool, err error) {
	all, err := f.Store.Forgotten(ctx, name)
	if err != nil {
		return report, false, err
	}
	for _, one := range all {
		if one.What != record.ForgottenRun || one.Ended.IsZero() {
			continue
		}
		if err := json.Unmarshal(one.Report, &report); err != nil {
			return report, false, fmt.Errorf("decode the report on run %s: %w", name, err)
		}
		report.Forgotten = &one
		return report, true, f.collector().collectRest(ctx) // it may have been interrupted before this
	}
	return report, false, nil
}

// needs are the blobs that other runs than one need.
type needs struct {
	digests map[string]bool
	at      any // the moment since which more may have been added
}

// candidates returns the blobs that a run names, directly or through manifests and batches,
// and those that others need.
func (f *Forgetter) candidates(ctx context.Context, run string) (candidates []string, needed needs, err error) {
	named, err := f.Store.FilesOf(ctx, run)
	if err != nil {
		return nil, needed, err
	}
	derived, err := f.derived(ctx, named.Batches)
	if err != nil {
		return nil, needed, err
	}
	candidates = slices.Concat(named.Batches, named.Others, derived)
	c := f.collector()
	for _, manifest := range slices.Concat(named.Manifests, named.Collected) {
		files, err := c.digests(ctx, manifest)
		if err != nil {
			return nil, needed, err
		}
		candidates = append(append(candidates, files...), manifest)
	}
	slices.Sort(candidates)
	candidates = slices.Compact(candidates)
	needed, err = f.needsOfOthers(ctx, run, len(derived) > 0)
	return candidates, needed, err
}

// needsOfOthers returns what other runs than one need, with what their batches were made from
// if derived is true: equal runs have equal values and scores. Others don't wait meanwhile.
func (f *Forgetter) needsOfOthers(ctx context.Context, run string, derived bool) (needs, error) {
	out := needs{digests: map[string]bool{}}
	named, err := f.Store.FilesOfOthers(ctx, run)
	if err != nil {
		return out, err
	}
	out.at = named.At
	if err := f.add(ctx, out, named); err != nil {
		return out, err
	}
	prompts, err := f.Store.PromptsOfOthers(ctx, run)
	if err != nil {
		return out, err
	}
	for _, digest := range prompts {
		out.digests[digest] = true
	}
	if !derived {
		return out, nil
	}
	files, err := f.derived(ctx, named.Batches)
	for _, digest := range files {
		out.digests[digest] = true
	}
	return out, err
}

// add adds the files that rows name, directly or through manifests.
func (f *Forgetter) add(ctx context.Context, to needs, named record.NamedFiles) error {
	for _, all := range [][]string{named.Manifests, named.Batches, named.Others} {
		for _, digest := range all {
			to.digests[digest] = true
		}
	}
	c := f.collector()
	if err := c.addNamed(ctx, to.digests, named.Manifests); err != nil {
		return err
	}
	for _, manifest := range named.Collected {
		digest, err := c.config(ctx, manifest)
		if err != nil {
			return err
		}
		to.digests[digest] = true
	}
	return nil
}

// collector returns the collector that remembers what manifests name.
func (f *Forgetter) collector() *Collector {
	if f.manifests == nil {
		f.manifests = &Collector{Store: f.Store, Blobs: f.Blobs}
	}
	return f.manifests
}

// derived returns the files from which batches were made.
func (f *Forgetter) derived(ctx context.Context, batches []string) (out []string, err error) {
	if f.expanded == nil {
		f.expanded = map[string][]string{}
	}
	for _, digest := range batches {
		files, ok := f.expanded[digest]
		if !ok {
			data, err := f.Blobs.Get(ctx, digest)
			if errors.Is(err, record.ErrNotFound) {
				continue // it was removed with a task, or in an interrupted removal
			}
			if err == nil {
				files, err = hf.BatchFiles(data)
			}
			if err != nil {
				return nil, fmt.Errorf("read batch %s: %w", digest, err)
			}
			f.expanded[digest] = files
		}
		out = append(out, files...)
	}
	return out, nil
}

// divide calls visit with each digest that next returns, and whether nothing else needs it.
func divide(next func() (digest string, ok bool), needed needs, visit func(digest string, unneeded bool) error) error {
	for digest, ok := next(); ok; digest, ok = next() {
		if err := visit(digest, !needed.digests[digest]); err != nil {
			return err
		}
	}
	return nil
}

// removeFiles removes the blobs of a run that nothing else needs. Batches and manifests go
// last, because they name others: an interrupted removal finds them again.
func (f *Forgetter) removeFiles(ctx context.Context, run string) error {
	named, err := f.Store.FilesOf(ctx, run)
	if err != nil {
		return err
	}
	candidates, needed, err := f.candidates(ctx, run)
	if err != nil {
		return err
	}
	naming := map[string]bool{}
	for _, digest := range slices.Concat(named.Manifests, named.Collected, named.Batches) {
		naming[digest] = true
	}
	slices.SortStableFunc(candidates, func(a, b string) int {
		switch {
		case naming[a] == naming[b]:
			return strings.Compare(a, b)
		case naming[b]:
			return -1
		}
		return 1
	})
	return f.removeUnneeded(ctx, run, candidates, needed)
}

// removeUnneeded removes those of some blobs that nothing but the run needs. needed is what
// others needed a moment ago.
func (f *Forgetter) removeUnneeded(ctx context.Context, run string, digests []string, needed needs) error {
	return inTurns(ctx, digests, func(next func() (digest string, ok bool)) error {
		return f.Store.WhileOthersNeed(ctx, run, needed.at, func(added record.NamedFiles) error {
			if err := f.add(ctx, needed, added); err != nil {
				return err
			}
			return divide(next, needed, func(digest string, unneeded bool) error {
				if !unneeded {
					return nil
				}
				return f.Blobs.Remove(ctx, digest)
			})
		})
	})
}

// Refusal returns an error if something was removed from a run that a step of it is computed
// from again; step 0 means any step. earlier is how many steps before it are read, too, and
// bodies says whether the bodies of calls are needed. The error wraps record.ErrForgotten and
// says when and by whom.
func Refusal(ctx context.Context, s interface {
	Forgotten(ctx context.Context, run string) ([]record.Forgotten, error)
}, run string, step, earlier int, bodies bool,
) error {
	all, err := s.Forgotten(ctx, run)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.What == record.ForgottenRecords {
			if bodies {
				return fmt.Errorf("run %s: the bodies of its calls were %w on %s by %s", run, record.ErrForgotten, readable.Time(one.Begun), one.By)
			}
			continue
		}
		steps, _ := record.ForgottenSteps([]record.Forgotten{one})
		numbers := slices.Sorted(maps.Keys(steps))
		if step == 0 && len(numbers) == 0 || step != 0 && !slices.ContainsFunc(numbers, func(n int) bool { return step-earlier <= n && n <= step }) {
			continue
		}
		what := fmt.Sprintf("task %q was", one.Task)
		if one.What == record.ForgottenUser {
			what = "what one of its users said was"
		}
		return fmt.Errorf("run %s: %s %w on %s by %s, and the %s of %s %s went with it", run, what, record.ErrForgotten, readable.Time(one.Begun), one.By,
			readable.Name(len(numbers), "batch"), readable.Name(len(numbers), "step"), shownSteps(numbers))
	}
	return nil
}

func shownSteps(numbers []int) string {
	const most = 10
	texts := make([]string, 0, most)
	for _, n := range numbers[:min(len(numbers), most)] {
		texts = append(texts, fmt.Sprint(n))
	}
	if len(numbers) > most {
		texts = append(texts, fmt.Sprintf("… (%d in all)", len(numbers)))
	}
	return strings.Join(texts, ", ")
}
