package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// The verdicts of PromoteVersion about an accepted candidate for which the
// pointer did not move.
const (
	verdictPinned = "pinned"
	verdictMoved  = "moved"
)

// DecidePromotion compares a candidate with the promoted version, task by task on the
// gate split. It moves nothing. It refuses a candidate that can't be compared: an
// evaluation that lacks a rollout never leads to a promotion. If a decision is on record,
// DecidePromotion returns it and does not decide again.
func (c *Coordinator) DecidePromotion(ctx context.Context, in DecidePromotionInput) (_ DecidePromotionResult, err error) {
	defer temporalError(&err)
	if before, ok, err := c.recordedDecision(ctx, in.Run, in.Policy, in.Candidate); ok || err != nil {
		return before, err
	}
	run, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return DecidePromotionResult{}, err
	}
	if s, err = s.Set(in.Set); err != nil {
		return DecidePromotionResult{}, invalid(fmt.Errorf("spec of run %s: %w", in.Run, err))
	}
	if s.Promotion.Alone {
		d, err := c.decideAlone(ctx, in, run, s)
		return DecidePromotionResult{Decision: d}, err
	}
	promoted, err := c.Ledger.Promoted(ctx, in.Run, in.Policy)
	if errors.Is(err, record.ErrNotFound) {
		return DecidePromotionResult{Decision: model.Unpaired(in.Candidate, -1, "no version is promoted to compare it with")}, nil
	}
	if err != nil {
		return DecidePromotionResult{}, fmt.Errorf("read the promoted version of run %s: %w", in.Run, err)
	}
	if promoted.Version == in.Candidate {
		return DecidePromotionResult{Decision: model.Unpaired(in.Candidate, promoted.Version, "it is promoted already")}, nil
	}
	g := gate{tasks: run.Splits[record.Gate].Count, samples: s.Evaluation.Samples}
	rewards, obstacle, err := c.gateRewards(ctx, in, g, policyBlock{kind: record.Gate, version: in.Candidate})
	if err != nil {
		return DecidePromotionResult{}, err
	}
	baseline, other, err := c.gateRewards(ctx, in, g, policyBlock{kind: record.Gate, version: promoted.Version})
	if err != nil {
		return DecidePromotionResult{}, err
	}
	if obstacle = cmp.Or(obstacle, other); obstacle != "" {
		return DecidePromotionResult{Decision: model.Unpaired(in.Candidate, promoted.Version, obstacle)}, nil
	}
	d, err := model.DecidePaired(in.Candidate, promoted.Version, rewards, baseline, s.Promotion.Margin, s.Promotion.Significance)
	if err != nil {
		return DecidePromotionResult{}, invalid(err)
	}
	return DecidePromotionResult{Decision: d}, nil
}

// gate has the numbers of tasks and samples of a complete evaluation on the gate split.
type gate struct{ tasks, samples int }

// gateRewards returns the mean rewards of an evaluation by task, or in obstacle the reason
// why there are none.
func (c *Coordinator) gateRewards(ctx context.Context, in DecidePromotionInput, g gate, of policyBlock) (means []float64, obstacle string, err error) {
	// Prompts sample nothing, and a policy that is promoted alone samples with others: their
	// attempts have the policy of the run.
	scores, err := c.Ledger.Scores(ctx, in.Run, model.DefaultPolicy, of.kind, of.version)
	if err != nil {
		return nil, "", fmt.Errorf("read the gate rewards of version %d: %w", of.version, err)
	}
	if g.tasks == 0 {
		return nil, "the run has no gate split", nil
	}
	means = make([]float64, g.tasks)
	found := 0
	for _, s := range scores {
		if task := s.Task - of.first; task >= 0 && task < g.tasks && s.Sample < g.samples {
			means[task] += s.Reward / float64(g.samples)
			found++
		}
	}
	if want := g.tasks * g.samples; found != want {
		return nil, fmt.Sprintf("the gate evaluation of version %d has %d rewards of %d", of.version, found, want), nil
	}
	return means, "", nil
}

// PromoteVersion moves the promoted pointer by compare-and-swap, once for each decision.
// If the pointer was pinned, or moved to another version, after the decision, it stays
// there, and PromoteVersion records that.
func (c *Coordinator) PromoteVersion(ctx context.Context, in PromoteVersionInput) (_ PromoteVersionResult, err error) {
	defer temporalError(&err)
	evidence, err := json.Marshal(in.Decision)
	if err != nil {
		return PromoteVersionResult{}, fmt.Errorf("encode decision %s: %w", in.DecisionID, err)
	}
	p := record.Promotion{
		Run: in.Run, Policy: in.Policy, DecisionID: in.DecisionID, Version: in.Version, Previous: in.Previous, Source: record.SourceGate,
		By: in.Decision.ApprovedBy, Reason: in.Decision.Reason(), Evidence: evidence, At: time.Now(),
	}
	err = c.Ledger.Promote(ctx, p)
	if errors.Is(err, record.ErrPinned) || errors.Is(err, record.ErrConflict) {
		r, failure := c.promotionRefused(ctx, p, err)
		if !errors.Is(failure, record.ErrConflict) {
			return r, failure
		}
		err = finalConflict(c.Ledger.Promote(ctx, p)) // another executor of this decision moved the pointer meanwhile
	}
	if err != nil {
		return PromoteVersionResult{}, err
	}
	promoted, err := c.Ledger.Promoted(ctx, in.Run, in.Policy)
	if err != nil {
		return PromoteVersionResult{}, err
	}
	r := PromoteVersionResult{Moved: promoted.Version == in.Version, Promoted: promoted.Version}
	if !r.Moved { // this is a retry, and the pointer was moved or pinned before
		r.Reason = fmt.Sprintf("version %d was promoted, and then version %d: %s", in.Version, promoted.Version, promoted.Reason)
	}
	return r, nil
}

// promotionRefused records that p found the pointer pinned or at another version. A retry
// reads this record, and not the pointer, which may no longer be pinned then.
func (c *Coordinator) promotionRefused(ctx context.Context, p record.Promotion, cause error) (PromoteVersionResult, error) {
	promoted, err := c.Ledger.Promoted(ctx, p.Run, p.Policy)
	if errors.Is(err, record.ErrNotFound) {
		return PromoteVersionResult{}, invalid(cause) // there is no pointer that p could have moved
	}
	if err != nil {
		return PromoteVersionResult{}, err
	}
	d, err := c.Ledger.Decision(ctx, p.Run, p.Policy, p.DecisionID)
	if errors.Is(err, record.ErrNotFound) {
		d = record.Decision{
			Run: p.Run, Policy: p.Policy, DecisionID: p.DecisionID, Candidate: p.Version, Promoted: p.Previous, Verdict: verdictMoved,
			Reason:   fmt.Sprintf("version %d was accepted, but version %d stays promoted: %s", p.Version, promoted.Version, promoted.Reason),
			Evidence: p.Evidence, At: p.At,
		}
		if errors.Is(cause, record.ErrPinned) {
			d.Verdict = verdictPinned
			d.Reason = fmt.Sprintf("version %d was accepted, but version %d is pinned by %s", p.Version, promoted.Version, promoted.By)
		}
		err = c.Ledger.PutDecision(ctx, d)
	}
	return PromoteVersionResult{Promoted: promoted.Version, Reason: d.Reason}, err
}

// RecordDecision records a decision that moves no pointer. If a decision about the
// candidate is already on record, that one is kept. It is returned if it differs.
func (c *Coordinator) RecordDecision(ctx context.Context, in RecordDecisionInput) (_ RecordDecisionResult, err error) {
	defer temporalError(&err)
	d, verdict := in.Decision, in.Verdict
	if why, ok := strings.CutPrefix(verdict, "refused: "); ok { // workflows wrote it like this before Decision.Obstacle existed
		d.Obstacle, verdict = why, "refused"
	}
	evidence, err := json.Marshal(d)
	if err != nil {
		return RecordDecisionResult{}, fmt.Errorf("encode the decision about version %d: %w", d.Candidate, err)
	}
	d.Accept = false // the reason says so
	err = c.Ledger.PutDecision(ctx, record.Decision{
		Run: in.Run, Policy: in.Policy, DecisionID: DecisionID(d.Candidate), Candidate: d.Candidate, Promoted: d.Promoted,
		Verdict: verdict, Reason: d.Reason(), Evidence: evidence, At: time.Now(),
	})
	if !errors.Is(err, record.ErrConflict) {
		return RecordDecisionResult{}, err
	}
	before, ok, failure := c.recordedDecision(ctx, in.Run, in.Policy, d.Candidate)
	if failure != nil || !ok {
		return RecordDecisionResult{}, cmp.Or(failure, finalConflict(err))
	}
	promoted, err := c.Ledger.Promoted(ctx, in.Run, in.Policy)
	if errors.Is(err, record.ErrNotFound) {
		promoted.Version, err = -1, nil
	}
	return RecordDecisionResult{Verdict: before.Verdict, Promoted: promoted.Version}, err
}

// RecordQuarantine records that a task can't be trained on. The first recorded reason is
// kept.
func (c *Coordinator) RecordQuarantine(ctx context.Context, in RecordQuarantineInput) (err error) {
	defer temporalError(&err)
	kind := record.Train
	if in.Reserve {
		kind = record.Reserve
	}
	q := record.Quarantine{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Kind: kind, Task: in.Task, Index: in.Index, Reason: in.Reason, At: time.Now(),
	}
	err = c.Ledger.PutQuarantine(ctx, q)
	if !errors.Is(err, record.ErrConflict) {
		return err
	}
	all, failure := c.Ledger.Quarantines(ctx, in.Run, in.Policy)
	if failure != nil {
		return failure
	}
	if slices.ContainsFunc(all, func(s record.Quarantine) bool {
		return s.Step == q.Step && s.Kind == q.Kind && s.Task == q.Task && s.Index == q.Index
	}) {
		return nil
	}
	return finalConflict(err)
}

// verdictPromoted is the verdict of a decision that moved the pointer.
const verdictPromoted = "promoted"

// DecisionID returns the id of the decision about a candidate.
func DecisionID(candidate int) string { return fmt.Sprintf("gate-%d", candidate) }

// recordedDecision returns the recorded decision about a candidate, if there is one. A
// workflow that was reset asks about a decision again, but nothing is decided twice.
func (c *Coordinator) recordedDecision(ctx context.Context, run, policy string, candidate int) (DecidePromotionResult, bool, error) {
	id := DecisionID(candidate)
	p, err := c.Ledger.Promotion(ctx, run, policy, id)
	if err == nil {
		d := evidence(p.Evidence, model.Decision{Candidate: p.Version, Promoted: p.Previous, Accept: true})
		return DecidePromotionResult{d, verdictPromoted}, true, nil
	}
	if !errors.Is(err, record.ErrNotFound) {
		return DecidePromotionResult{}, false, err
	}
	r, err := c.Ledger.Decision(ctx, run, policy, id)
	if errors.Is(err, record.ErrNotFound) {
		return DecidePromotionResult{}, false, nil
	}
	if err != nil {
		return DecidePromotionResult{}, false, err
	}
	return DecidePromotionResult{evidence(r.Evidence, model.Unpaired(r.Candidate, r.Promoted, r.Reason)), r.Verdict}, true, nil
}

// evidence decodes a recorded decision, or returns otherwise if it can't be decoded.
func evidence(text json.RawMessage, otherwise model.Decision) model.Decision {
	var d model.Decision
	if json.Unmarshal(text, &d) != nil {
		return otherwise
	}
	return d
}

// Moved reports whether the recorded decision was passed to PromoteVersion, whether or
// not the pointer moved.
func (r DecidePromotionResult) Moved() bool {
	return r.Verdict == verdictPromoted || r.Verdict == verdictPinned || r.Verdict == verdictMoved
}
