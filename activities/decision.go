package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// verdictPromoted is the verdict of a decision by which the pointer moved.
const verdictPromoted = "promoted"

// DecisionID names the decision about a candidate.
func DecisionID(candidate int) string { return fmt.Sprintf("gate-%d", candidate) }

// recordedDecision reads the decision about a candidate from the record. A workflow that
// was reset asks again about a decision; nothing is decided twice.
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

// Moved reports whether PromoteVersion was asked to carry out the recorded decision,
// whether or not the pointer moved.
func (r DecidePromotionResult) Moved() bool {
	return r.Verdict == verdictPromoted || r.Verdict == verdictPinned || r.Verdict == verdictMoved
}
