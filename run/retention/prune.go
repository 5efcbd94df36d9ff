package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// PruneRule says what is no longer needed of runs that have ended. Its JSON is the input of
// workflows.
type PruneRule struct {
	// Runs is a pattern of path.Match for the names of runs.
	Runs string `json:"runs"`
	// OlderThan is how long ago a run has to have ended, in nanoseconds.
	OlderThan time.Duration `json:"older_than"`
	// Weights deletes the files of versions that Keep does not keep, besides those that are
	// never deleted.
	Weights bool      `json:"weights"`
	Keep    spec.Keep `json:"keep"`
	// Records removes the bodies of calls, the spans and the printed output of all attempts.
	Records bool `json:"records"`
}

// Check returns an error if the rule is none.
func (r PruneRule) Check() error {
	if _, err := path.Match(r.Runs, ""); err != nil {
		return fmt.Errorf("pattern of runs %q: %w", r.Runs, err)
	}
	if r.OlderThan < 0 {
		return fmt.Errorf("age %s: give 0 or more", r.OlderThan)
	}
	if r.Weights && (r.Keep.Last < 1 || r.Keep.Every < 0) {
		return fmt.Errorf("versions to keep: give at least 1 of the newest (not %d), and 0 or more for multiples (not %d)", r.Keep.Last, r.Keep.Every)
	}
	if !r.Weights && !r.Records {
		return errors.New("neither weights nor records: give at least one of them")
	}
	return nil
}

// Text describes the rule in words.
func (r PruneRule) Text() string {
	var parts []string
	if r.Weights {
		kept := fmt.Sprintf("weights but for the newest %s", readable.Count(r.Keep.Last, "version"))
		if r.Keep.Every > 0 {
			kept += fmt.Sprintf(", multiples of %d", r.Keep.Every)
		}
		if r.Keep.Promoted {
			kept += ", all promoted ones"
		}
		parts = append(parts, kept)
	}
	if r.Records {
		parts = append(parts, "bodies of calls")
	}
	return fmt.Sprintf("%s of runs %s that ended longer ago than %s", strings.Join(parts, ", and "), r.Runs, AgeText(r.OlderThan))
}

// AgeText returns an age as `fulgurite prune --older-than` takes it.
func AgeText(age time.Duration) string {
	const day = 24 * time.Hour
	if age > 0 && age%day == 0 {
		return fmt.Sprintf("%dd", age/day)
	}
	return age.String()
}

// selects reports whether the rule is about the run with a name.
func (r PruneRule) selects(run string) bool {
	ok, err := path.Match(r.Runs, run)
	return ok && err == nil
}

// PruneReport says what a rule removes. The keys of its JSON are a public contract.
type PruneReport struct {
	// Runs are those of which something is removed, the oldest first.
	Runs []PrunedRun `json:"runs"`
	// Skipped says why nothing is removed of runs that the rule selects.
	Skipped []string `json:"skipped"`
	// Selected counts the runs that the rule selects by name, and Ended those of them that
	// ended long enough ago.
	Selected int   `json:"selected"`
	Ended    int   `json:"ended"`
	Bytes    int64 `json:"bytes"` // of files and of bodies
	DryRun   bool  `json:"dry_run"`
}

// PrunedRun says what is removed of a run.
type PrunedRun struct {
	Run      string    `json:"run"`
	Finished time.Time `json:"finished"`
	// Versions are those whose files are deleted; of several policies the joint ones.
	Versions  []int `json:"versions"`
	Files     int   `json:"files"`
	FileBytes int64 `json:"file_bytes"`
	// Records says that the bodies, spans and printed outputs are removed, and BodyBytes is
	// about how many bytes they have.
	Records   bool  `json:"records"`
	BodyBytes int64 `json:"body_bytes"`
}

// Prune removes what a rule says is no longer needed. It calls before with what it is about
// to remove; an error ends it with nothing removed. On a dry run it changes nothing. It is
// safe beside runs under way, and if it is interrupted, the next call continues.
func (f *Forgetter) Prune(ctx context.Context, rule PruneRule, by string, dryRun bool, before func(PruneReport) error) (PruneReport, error) {
	out := PruneReport{Runs: []PrunedRun{}, Skipped: []string{}, DryRun: dryRun}
	if err := rule.Check(); err != nil {
		return out, fmt.Errorf("rule for pruning: %w", err)
	}
	runs, err := f.Store.Runs(ctx)
	if err != nil {
		return out, err
	}
	var ended []record.Run
	for _, r := range slices.Backward(runs) {
		if !rule.selects(r.Name) {
			continue
		}
		out.Selected++
		if r.Status == record.Running || r.Status == record.Forgetting || r.Finished.IsZero() || time.Since(r.Finished) < rule.OlderThan {
			continue
		}
		out.Ended++
		if r.Status == record.Refused {
			continue // it never began, so it has neither versions nor attempts, and its spec may not be one
		}
		one, err := f.planPrune(ctx, r, rule)
		if errors.Is(err, errSkipped) {
			out.Skipped = append(out.Skipped, err.Error())
			continue
		}
		if err != nil {
			return out, fmt.Errorf("prune run %s: %w", r.Name, err)
		}
		if one.Files > 0 || len(one.Versions) > 0 || one.Records {
			out.Runs, ended = append(out.Runs, one), append(ended, r)
			out.Bytes += one.FileBytes + one.BodyBytes
		}
	}
	if err := before(out); err != nil || dryRun {
		return out, err
	}
	planned := out.Runs
	out.Runs, out.Bytes = []PrunedRun{}, 0
	for i, r := range ended {
		err := f.prune(ctx, r, rule, planned[i], by)
		if errors.Is(err, errSkipped) {
			out.Skipped = append(out.Skipped, err.Error())
			continue
		}
		if err != nil {
			return out, fmt.Errorf("prune run %s: %w", r.Name, err)
		}
		out.Runs, out.Bytes = append(out.Runs, planned[i]), out.Bytes+planned[i].FileBytes+planned[i].BodyBytes
	}
	return out, nil
}

// errSkipped is wrapped by the reasons why nothing more is removed of a run. They keep no other
// run from being pruned.
var errSkipped = errors.New("nothing more is removed of it")

func skipped(r record.Run, err error) error {
	return fmt.Errorf("run %s: %w: %w", r.Name, err, errSkipped)
}

// free returns an error if another run is about to start from the run.
func (f *Forgetter) free(ctx context.Context, r record.Run) error {
	err := f.startsFrom(ctx, r.Name)
	if errors.Is(err, ErrRefused) {
		return skipped(r, err)
	}
	return err
}

func (f *Forgetter) prune(ctx context.Context, r record.Run, rule PruneRule, plan PrunedRun, by string) error {
	// Runs before it may have taken hours.
	if err := f.free(ctx, r); err != nil {
		return err
	}
	now, err := f.Store.Run(ctx, r.Name)
	if err != nil {
		return err
	}
	if now.Status != r.Status || now.ExecutionID != r.ExecutionID {
		return skipped(r, errors.New("it goes on"))
	}
	if rule.Weights {
		s, err := spec.Stored(r.Spec)
		if err != nil {
			return skipped(r, fmt.Errorf("its spec: %w", err))
		}
		if err := f.collector().collectUnder(ctx, r.Name, s, rule.Keep); err != nil {
			return err
		}
	}
	if !plan.Records {
		return nil
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return fmt.Errorf("encode its report: %w", err)
	}
	stone, _, err := f.Store.BeginForgetting(ctx, r, record.Forgotten{Run: r.Name, What: record.ForgottenRecords, By: by, Reason: "pruned", Report: text})
	if errors.Is(err, record.ErrConflict) {
		return skipped(r, errors.New("it goes on, so it needs the bodies of its calls"))
	}
	if err == nil {
		err = f.Store.RemoveBodies(ctx, r.Name)
	}
	if err == nil {
		stone.Ended = time.Now()
		err = f.Store.EndForgetting(ctx, stone)
	}
	return err
}

// planPrune returns what a rule removes of a run.
func (f *Forgetter) planPrune(ctx context.Context, r record.Run, rule PruneRule) (PrunedRun, error) {
	out := PrunedRun{Run: r.Name, Finished: r.Finished, Versions: []int{}}
	if err := f.free(ctx, r); err != nil {
		return out, err
	}
	if rule.Weights {
		if err := f.planWeights(ctx, r, rule.Keep, &out); err != nil {
			return out, err
		}
	}
	if !rule.Records {
		return out, nil
	}
	removed, err := f.Store.Forgotten(ctx, r.Name)
	if err != nil {
		return out, err
	}
	begun := false // and interrupted: then it has to end, even if nothing is left to remove
	for _, one := range removed {
		if one.What == record.ForgottenRecords {
			if !one.Ended.IsZero() {
				return out, nil
			}
			begun = true
		}
	}
	out.BodyBytes, err = f.Store.BodyBytes(ctx, r.Name)
	out.Records = begun || out.BodyBytes > 0
	return out, err
}

// planWeights finds the files of a run's versions that a rule does not keep and nothing else
// needs.
func (f *Forgetter) planWeights(ctx context.Context, r record.Run, keep spec.Keep, out *PrunedRun) error {
	s, err := spec.Stored(r.Spec)
	if err != nil {
		return skipped(r, fmt.Errorf("its spec: %w", err))
	}
	policies, err := policiesOf(r)
	if err != nil {
		return skipped(r, err)
	}
	unkept := map[string]bool{} // manifests
	var gone []int              // joint versions, those too that went before
	for _, policy := range policies {
		h, err := f.Store.Holdings(ctx, r.Name, policy)
		if err != nil {
			return err
		}
		unneeded := Unneeded(h, keep, s.Training.Lag)
		if policy == model.DefaultPolicy {
			out.Versions = append(out.Versions, unneeded...)
		} else if !model.IsCritic(policy) {
			promoted := promotedVersions(h.Promotions, keep.Promoted) // none, unless it is promoted alone
			unneeded = slices.DeleteFunc(slices.Clone(gone), func(n int) bool { return promoted[n] })
		}
		versions, err := f.Store.Versions(ctx, r.Name, policy)
		if err != nil {
			return err
		}
		for _, v := range versions {
			if policy == model.DefaultPolicy && (!v.Collected.IsZero() || slices.Contains(unneeded, v.Number)) {
				gone = append(gone, v.Number)
			}
			if !v.Collected.IsZero() || slices.Contains(unneeded, v.Number) {
				unkept[v.Manifest] = true
			}
		}
	}
	left, err := f.collector().leftOf(ctx, slices.Sorted(maps.Keys(unkept)))
	if err != nil && ctx.Err() == nil {
		return skipped(r, err)
	}
	if err != nil || len(left) == 0 {
		return err // what others need is much to read
	}
	kept, _, err := f.Store.KeptManifests(ctx)
	if err != nil {
		return err
	}
	others, err := f.Store.FilesOfOthers(ctx, r.Name)
	if err != nil {
		return err
	}
	ofOthers := map[string]bool{}
	for _, manifest := range others.Manifests {
		ofOthers[manifest] = true
	}
	needed := map[string]bool{}
	for _, manifest := range kept {
		if unkept[manifest] && !ofOthers[manifest] {
			continue
		}
		files, err := f.collector().digests(ctx, manifest)
		if err != nil {
			return err
		}
		for _, digest := range files {
			needed[digest] = true
		}
	}
	slices.Sort(left)
	for _, digest := range slices.Compact(left) {
		if needed[digest] {
			continue
		}
		n, err := f.Blobs.Size(digest)
		if errors.Is(err, record.ErrNotFound) {
			continue // another removal was faster
		}
		if err != nil {
			return err
		}
		out.Files, out.FileBytes = out.Files+1, out.FileBytes+n
	}
	return nil
}
