package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

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
	if !errors.Is(err, trace.ErrNotFound) {
		return DecidePromotionResult{}, false, err
	}
	r, err := c.Ledger.Decision(ctx, run, policy, id)
	if errors.Is(err, trace.ErrNotFound) {
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
