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

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
)

// SearchAttributes returns the names and types of the search attributes that a run keeps
// up to date, if the cluster has them registered.
func SearchAttributes() map[string]enums.IndexedValueType {
	run, step, promoted, reward := attributes()
	return map[string]enums.IndexedValueType{
		run.GetName(): run.GetValueType(), step.GetName(): step.GetValueType(),
		promoted.GetName(): promoted.GetValueType(), reward.GetName(): reward.GetValueType(),
	}
}

// attributes returns their typed keys. It is a function and not variables, since packages
// here keep no state.
func attributes() (run temporal.SearchAttributeKeyKeyword, step, promoted temporal.SearchAttributeKeyInt64, reward temporal.SearchAttributeKeyFloat64) {
	return temporal.NewSearchAttributeKeyKeyword("FulguriteRun"), temporal.NewSearchAttributeKeyInt64("FulguriteStep"),
		temporal.NewSearchAttributeKeyInt64("FulguritePromoted"), temporal.NewSearchAttributeKeyFloat64("FulguriteReward")
}

// enter sets what the run is doing, for the query and for Temporal's Web UI.
func (t *trainingRun) enter(ctx workflow.Context, phase Phase, subject string) {
	t.phase, t.subject, t.entered = phase, subject, workflow.Now(ctx)
	workflow.SetCurrentDetails(ctx, t.details())
}

func (t *trainingRun) progress() (Progress, error) {
	p := Progress{
		Run: t.Run, Phase: t.phase, Subject: t.subject, Step: t.Step, Steps: t.steps(), Stop: t.stop(), Promoted: t.Promoted,
		Before: t.Before, After: t.After, Curve: t.Curve, Failed: t.Failed, Calls: t.Calls, Tokens: t.Tokens,
		Warnings: t.warnings(), Started: t.started(), Paused: t.Paused, Pending: t.Pending, Quarantined: len(t.Quarantined),
	}
	if len(t.inFlight) > 0 {
		p.Curriculum = t.inFlight[0].text
	}
	if t.phase == PhaseUpdate {
		p.Since, p.UpdateSeconds = t.entered, t.updating.Seconds()
	}
	if t.phase == PhaseEvaluation {
		p.Since = t.entered
	}
	if t.phase == PhaseRollouts && len(t.inFlight) > 0 {
		g := t.inFlight[0]
		p.Rollouts, p.StepTokens, p.Since, p.UpdateSeconds = g.count, g.tokens, g.began, t.updating.Seconds()
	}
	return p, nil
}

// warnings say what is wrong with how the run learns.
func (t *trainingRun) warnings() []string {
	var out []string
	if text := t.Untaught.Text(); text != "" {
		out = append(out, text)
	}
	if t.LeftOut > 0 {
		text := fmt.Sprintf("%s left out of training, because an attempt could not be given credit", readable.Were(t.LeftOut, "group"))
		if t.LeftOutReason != "" {
			text += "; the last: " + t.LeftOutReason
		}
		out = append(out, text)
	}
	return out
}

// Pace returns how many tokens a second the step under way samples, and how long it will
// take until its version is made, or until the evaluation under way ends. This assumes that
// rollouts go on to end as before, and that the update takes as long as the last one. 0
// means that nothing is known yet.
func (p Progress) Pace(now time.Time) (tokensPerSecond float64, left time.Duration) {
	elapsed, update := now.Sub(p.Since), time.Duration(p.UpdateSeconds*float64(time.Second))
	switch {
	case p.Since.IsZero() || elapsed <= 0:
		return 0, 0
	case p.Phase == PhaseUpdate:
		return 0, max(0, update-elapsed)
	case p.Rollouts.Done == 0:
		return 0, 0
	}
	waiting := float64(p.Rollouts.Total-p.Rollouts.Done) / float64(p.Rollouts.Done)
	return float64(p.StepTokens) / elapsed.Seconds(), time.Duration(waiting*float64(elapsed)) + update
}

// PaceText returns the result of Pace in words, "" if nothing is known.
func (p Progress) PaceText(now time.Time) string {
	var parts []string
	rate, left := p.Pace(now)
	if rate > 0 {
		parts = append(parts, fmt.Sprintf("%.0f tokens/s", rate))
	}
	what := "next version"
	if p.Phase == PhaseEvaluation {
		what = "result"
	}
	if left >= time.Second {
		parts = append(parts, fmt.Sprintf("%s in %s", what, left.Round(time.Second)))
	}
	return strings.Join(parts, ", ")
}

// showRollouts updates the details when a group of the step under way has ended. It
// issues no command: Temporal's Web UI reads the details by a query.
func (t *trainingRun) showRollouts(ctx workflow.Context, g *stepGroups) {
	if t.phase == PhaseRollouts && len(t.inFlight) > 0 && t.inFlight[0] == g {
		workflow.SetCurrentDetails(ctx, t.details())
	}
}

// detailsTime is the form of times in the details.
const detailsTime = time.DateTime + " MST"

// detailRows is how many of the last steps the details show.
const detailRows = 20

// details describes the run in Markdown, with a table of the last steps.
func (t *trainingRun) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**: %s (%s) since %s. Step %d of %d, promoted version %d.\n\n",
		t.Run, t.phase, t.subject, t.entered.UTC().Format(detailsTime), t.Step, t.steps(), t.Promoted)
	if stop := t.stop(); stop != nil {
		fmt.Fprintf(&b, "Stops after step %d, %s.\n\n", stop.After, stop.Text())
	}
	// A workflow does not learn of the tries of its activities.
	fmt.Fprintf(&b, "If it takes long, `%s` says what it waits for; so do the pending activities, here and in the workflows below it.\n\n", shell.Command("status", t.Run))
	if t.phase == PhaseRollouts && len(t.inFlight) > 0 {
		g := t.inFlight[0]
		p, _ := t.progress() // it has no error
		fmt.Fprintf(&b, "%d of %s, %s", g.count.Done, readable.Count(g.count.Total, "rollout"), readable.Count(g.tokens, "token"))
		if pace := p.PaceText(g.seen); pace != "" {
			fmt.Fprintf(&b, ": %s at %s", pace, g.seen.UTC().Format(detailsTime))
		}
		b.WriteString("\n\n")
		if g.text != "" {
			fmt.Fprintf(&b, "Tasks of the step: %s.\n\n", g.text)
		}
	}
	for _, text := range t.warnings() {
		fmt.Fprintf(&b, "Warning: %s.\n\n", text)
	}
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
		fmt.Fprintf(&b, "%s, the last because: %s\n\n", readable.Are(n, "task", "quarantined"), t.Quarantined[n-1].Reason)
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

// merge joins the metrics of a step's stages, which have no names in common.
func merge(a, b map[string]float64) map[string]float64 {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]float64{}
	}
	maps.Copy(out, b)
	return out
}

// mustJSON encodes values of ours that always encode.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
