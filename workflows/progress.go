package workflows

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// SearchAttributes are the names and types that a run keeps up to date where a
// cluster has them registered.
func SearchAttributes() map[string]enums.IndexedValueType {
	run, step, promoted, reward := attributes()
	return map[string]enums.IndexedValueType{
		run.GetName(): run.GetValueType(), step.GetName(): step.GetValueType(),
		promoted.GetName(): promoted.GetValueType(), reward.GetName(): reward.GetValueType(),
	}
}

// attributes are their typed keys; a function and not variables, since packages
// here keep no state.
func attributes() (run temporal.SearchAttributeKeyKeyword, step, promoted temporal.SearchAttributeKeyInt64, reward temporal.SearchAttributeKeyFloat64) {
	return temporal.NewSearchAttributeKeyKeyword("FulguriteRun"), temporal.NewSearchAttributeKeyInt64("FulguriteStep"),
		temporal.NewSearchAttributeKeyInt64("FulguritePromoted"), temporal.NewSearchAttributeKeyFloat64("FulguriteReward")
}

// enter sets what the run is doing, for the query and for Temporal's Web UI.
func (t *trainingRun) enter(ctx workflow.Context, phase Phase, subject string) {
	t.phase, t.subject = phase, subject
	workflow.SetCurrentDetails(ctx, t.details())
}

func (t *trainingRun) progress() (Progress, error) {
	p := Progress{
		Run: t.Run, Phase: t.phase, Subject: t.subject, Step: t.Step, Steps: t.last(), Promoted: t.Promoted,
		Before: t.Before, After: t.After, Curve: t.Curve, Failed: t.Failed, Calls: t.Calls, Tokens: t.Tokens,
		Started: t.started(), Paused: t.Paused, Pending: t.Pending, Quarantined: len(t.Quarantined),
	}
	if t.phase == PhaseRollouts && len(t.inFlight) > 0 {
		p.Rollouts = t.inFlight[0].count
	}
	return p, nil
}

// detailRows is how many of the last steps the details show.
const detailRows = 20

// details is a table in Markdown.
func (t *trainingRun) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**: %s (%s). Step %d of %d, promoted version %d.\n\n", t.Run, t.phase, t.subject, t.Step, t.last(), t.Promoted)
	if t.Before != nil {
		fmt.Fprintf(&b, "Test reward before: %.3f ± %.3f\n\n", t.Before.Mean, t.Before.StdError)
	}
	if t.After != nil && t.After != t.Before {
		fmt.Fprintf(&b, "Test reward after: %.3f ± %.3f\n\n", t.After.Mean, t.After.StdError)
	}
	if t.Pending != nil {
		fmt.Fprintf(&b, "Version %d waits for approval until %s.\n\n", t.Pending.Decision.Candidate, t.Pending.Deadline.UTC().Format(time.RFC3339))
	}
	if n := len(t.Quarantined); n > 0 {
		fmt.Fprintf(&b, "%d tasks are quarantined, the last because: %s\n\n", n, t.Quarantined[n-1].Reason)
	}
	if len(t.Curve) == 0 {
		return b.String()
	}
	b.WriteString("| step | reward | gate |\n| ---: | ---: | ---: |\n")
	for _, p := range t.Curve[max(0, len(t.Curve)-detailRows):] {
		gate := ""
		if p.Gate != nil {
			gate = fmt.Sprintf("%.3f", *p.Gate)
		}
		fmt.Fprintf(&b, "| %d | %.3f | %s |\n", p.Step, p.Reward, gate)
	}
	return b.String()
}

// publishAttributes makes the run searchable in the Web UI.
func (t *trainingRun) publishAttributes(ctx workflow.Context) error {
	if !t.SearchAttributes {
		return nil
	}
	run, step, promoted, reward := attributes()
	return workflow.UpsertTypedSearchAttributes(ctx,
		run.ValueSet(t.Run), step.ValueSet(int64(t.Step)), promoted.ValueSet(int64(t.Promoted)),
		reward.ValueSet(t.Curve[len(t.Curve)-1].Reward))
}

// merge joins the metrics of a step's stages; their names do not meet.
func merge(a, b map[string]float64) map[string]float64 {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]float64{}
	}
	maps.Copy(out, b)
	return out
}

// mustJSON is for values of ours that always encode.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
