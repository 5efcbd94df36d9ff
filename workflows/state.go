package workflows

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Phase is the current activity of a run.
type Phase string

// The phases.
const (
	PhasePreparing  Phase = "preparing"
	PhaseWarmStart  Phase = "warm start"
	PhaseSearch     Phase = "search" // for better prompts
	PhaseRollouts   Phase = "rollouts"
	PhaseUpdate     Phase = "update"
	PhaseEvaluation Phase = "evaluation"
	PhaseShadow     Phase = "shadow" // a candidate replies to prompts on record
	PhasePaused     Phase = "paused"
	PhaseTraffic    Phase = "traffic"  // nothing is left to do until a segment is asked for
	PhaseApproval   Phase = "approval" // nothing is left to do but a person's decision
	PhaseFinished   Phase = "finished"
	PhaseFailed     Phase = "failed" // the subject says why
	PhaseCancelled  Phase = "cancelled"
	PhaseUnknown    Phase = "unknown" // the workflow can't be asked; the rest is what the store has
)

// maxQuarantined bounds the quarantined tasks in the state, and reasonBytes the reason
// of each. Together they stay below the 2 MiB that Temporal carries into a fresh
// history. The store has the whole reasons.
const (
	maxQuarantined = 8000
	reasonBytes    = 100
)

// shortReason returns a reason as the state carries it: one line of at most reasonBytes.
func shortReason(reason string) string {
	reason = strings.Join(strings.FieldsFunc(reason, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return truncate.Ellipsis(reason, reasonBytes)
}

// curveLength bounds the curve in the state: the store has every step.
const curveLength = 400

// TrainingState is the whole state of TrainingWorkflow. continue-as-new carries it over.
type TrainingState struct {
	Run              string                       `json:"run"`
	Spec             spec.Spec                    `json:"spec"`
	Splits           map[record.Kind]record.Split `json:"splits"` // nil until the run is prepared
	SearchAttributes bool                         `json:"search_attributes"`

	// Started is true once version 0 was made, evaluated and promoted.
	Started bool `json:"started"`
	// Step counts finished steps; version Step is the newest.
	Step int `json:"step"`
	// Cursor counts the tasks taken from the endless stream of the train split.
	Cursor   int    `json:"cursor"`
	Weights  string `json:"weights,omitempty"` // of version Step
	Promoted int    `json:"promoted"`
	// Policies has the promoted version of each policy by its name, if each is promoted alone.
	// Promoted is then 0, the version with which all began.
	Policies map[string]int `json:"policies,omitempty"`
	// Evaluated is the last version that was evaluated on the gate split.
	Evaluated int `json:"evaluated,omitempty"`
	// Gate is the promoted version's mean reward on the gate split.
	Gate      float64                `json:"gate"`
	Before    *activities.Evaluation `json:"before,omitempty"` // version 0 on the test split
	After     *activities.Evaluation `json:"after,omitempty"`  // the promoted version, or the last one without a gate split
	Curve     []CurvePoint           `json:"curve,omitempty"`
	Decisions []model.Decision       `json:"decisions,omitempty"`
	Failed    int                    `json:"failed"` // rollouts whose agent failed
	Calls     int                    `json:"calls"`
	Tokens    int                    `json:"tokens"`

	// Untaught describes the last steps if they taught nothing.
	Untaught record.Untaught `json:"untaught,omitzero"`
	// LeftOut counts the groups that were left out of batches, because an attempt could
	// not be given credit; LeftOutReason is why the last of them was.
	LeftOut       int    `json:"left_out,omitempty"`
	LeftOutReason string `json:"left_out_reason,omitempty"`

	Quarantined []Quarantine `json:"quarantined,omitempty"`
	Settings    []Setting    `json:"settings,omitempty"`
	Paused      bool         `json:"paused,omitempty"`
	// Stop is the request to end the run early; nil if there is none. Its Of is not set.
	Stop *record.Stop `json:"stop,omitempty"`
	// Pending is the candidate that waits for a person; nil if none does.
	Pending *Approval `json:"pending,omitempty"`

	// Experiment is the decision to promote a candidate that is being compared in use; nil if
	// none is.
	Experiment *model.Decision `json:"experiment,omitempty"`

	// Search is how far the search for better prompts has come, and SearchEnd its end; nil
	// without a search, or before.
	Search    *activities.SearchProgress `json:"search,omitempty"`
	SearchEnd *activities.SearchEnd      `json:"search_end,omitempty"`
}

// Quarantine is a task that failed because of the task itself. Later steps leave it out.
type Quarantine struct {
	Index  int    `json:"index"` // in the train split
	Step   int    `json:"step"`  // that found it
	Reason string `json:"reason"`
}

// CurvePoint is one finished step.
type CurvePoint struct {
	Step   int     `json:"step"`
	Reward float64 `json:"reward"` // mean over the step's rollouts
	// Gate is the mean reward of version Step on the gate split. If each policy is promoted
	// alone, it is that of what is promoted after the step.
	Gate *float64 `json:"gate,omitempty"`
}

// Progress answers the query "progress".
type Progress struct {
	Run     string `json:"run"`
	Phase   Phase  `json:"phase"`
	Subject string `json:"subject"` // what the phase is about; of an evaluation its workflow id
	Step    int    `json:"step"`    // steps finished
	Steps   int    `json:"steps"`   // that the spec asks for
	// Stop is the request to end the run before the last of them; nil if there is none.
	Stop     *record.Stop `json:"stop,omitempty"`
	Promoted int          `json:"promoted"`
	// Policies has the promoted version of each policy by its name, if each is promoted alone.
	// Promoted is then 0.
	Policies map[string]int `json:"policies,omitempty"`
	// Budget is what the run may use from the next step on; nil if there is no limit.
	Budget *spec.Budget `json:"budget,omitempty"`
	// Rollouts counts those of the step under way, or of the evaluation under way: those of an
	// evaluation are known to its own workflow and added by who asks.
	Rollouts Count `json:"rollouts"`
	// StepTokens counts the tokens that the step's rollouts have sampled, Since is when
	// the rollouts, the update or the evaluation began, and UpdateSeconds how long the previous update
	// took.
	StepTokens    int       `json:"step_tokens,omitempty"`
	Since         time.Time `json:"since,omitzero"`
	UpdateSeconds float64   `json:"update_seconds,omitempty"`
	Started       int       `json:"started"` // the last step whose rollouts have begun
	Paused        bool      `json:"paused,omitempty"`
	Pending       *Approval `json:"pending,omitempty"`
	// Experiment is the decision to promote a candidate that is being compared in use; nil if
	// none is.
	Experiment *model.Decision `json:"experiment,omitempty"`

	// Search is how far the search for better prompts has come, and SearchEnd its end.
	Search    *activities.SearchProgress `json:"search,omitempty"`
	SearchEnd *activities.SearchEnd      `json:"search_end,omitempty"`
	// Quarantined counts tasks that later steps leave out.
	Quarantined int                    `json:"quarantined,omitempty"`
	Before      *activities.Evaluation `json:"before,omitempty"`
	After       *activities.Evaluation `json:"after,omitempty"`
	Curve       []CurvePoint           `json:"curve,omitempty"`
	// Warnings say what is wrong with how the run learns.
	Warnings []string `json:"warnings,omitempty"`
	// Curriculum says which tasks were chosen for the step under way, if one chooses.
	Curriculum string `json:"curriculum,omitempty"`
	// Failed, Calls and Tokens count the rollouts of finished steps. What evaluations and the
	// step under way add is in the store.
	Failed int `json:"failed"`
	Calls  int `json:"calls"`
	Tokens int `json:"tokens"`
}

// Count is done out of total.
type Count struct {
	Done  int `json:"done"`
	Total int `json:"total"`
}

// TrainingResult is the outcome of a run.
type TrainingResult struct {
	Run      string `json:"run"`
	Steps    int    `json:"steps"`
	Promoted int    `json:"promoted"`
	// Policies has the promoted version of each policy by its name, if each is promoted alone.
	// Promoted is then 0.
	Policies map[string]int         `json:"policies,omitempty"`
	Weights  string                 `json:"weights"` // digest of the last version's weights
	Before   *activities.Evaluation `json:"before,omitempty"`
	After    *activities.Evaluation `json:"after,omitempty"`
	// Stopped is the request that ended the run before its last step; nil if none did.
	Stopped *record.Stop `json:"stopped,omitempty"`
	// Evaluation is the result of a run that trains nothing.
	Evaluation *activities.Evaluation `json:"evaluation,omitempty"`
	// Search is how a search for better prompts went, and SearchEnd its end. Promoted is
	// then a version of the prompts.
	Search    *activities.SearchProgress `json:"search,omitempty"`
	SearchEnd *activities.SearchEnd      `json:"search_end,omitempty"`
}

// steps returns how many steps the spec asks for.
func (s *TrainingState) steps() int {
	for _, setting := range slices.Backward(s.Settings) {
		if n, ok := setting.Values[spec.KeySteps]; ok {
			return int(n)
		}
	}
	return s.Spec.Training.Total(s.Splits[record.Train].Count)
}

// last returns the step after which the run ends.
func (s *TrainingState) last() int {
	if s.Stop != nil {
		return min(s.Stop.After, s.steps())
	}
	return s.steps()
}

// stop returns the request that ends the run before its last step; nil if none does.
func (s *TrainingState) stop() *record.Stop {
	if s.Stop == nil || s.Spec.Optimizer == nil && s.last() == s.steps() {
		return nil
	}
	stop := *s.Stop
	stop.Of = s.steps()
	return &stop
}

// settingsOf returns everything that was set for a step; nil if nothing was.
func (s *TrainingState) settingsOf(step int) map[string]float64 {
	var values map[string]float64
	for _, setting := range s.Settings {
		if setting.From > step {
			continue
		}
		if values == nil {
			values = map[string]float64{}
		}
		maps.Copy(values, setting.Values)
	}
	return values
}

// specAt returns the spec as a step reads it.
func (s *TrainingState) specAt(step int) spec.Spec {
	at, err := s.Spec.Set(s.settingsOf(step))
	if err != nil {
		return s.Spec // unreachable: every setting was checked before it was accepted
	}
	return at
}

func (s *TrainingState) has(split record.Kind) bool { return s.Splits[split].Count > 0 }

// evaluates reports whether version v is evaluated on the gate split.
func (s *TrainingState) evaluates(v int) bool {
	return s.has(record.Gate) && (v%s.specAt(v).Evaluation.Every == 0 || v == s.last())
}

// addDecision keeps the last decisions: the store has all, with their shadows.
func (s *TrainingState) addDecision(d model.Decision) {
	d.Shadow = nil
	s.Decisions = append(s.Decisions, d)
	s.Decisions = s.Decisions[max(0, len(s.Decisions)-curveLength):]
}

func (s *TrainingState) addPoint(p CurvePoint) {
	s.Curve = append(s.Curve, p)
	s.Curve = s.Curve[max(0, len(s.Curve)-curveLength):]
}

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
		Run: t.Run, Phase: t.phase, Subject: t.subject, Step: t.Step, Steps: t.steps(), Stop: t.stop(), Promoted: t.Promoted, Policies: t.Policies,
		Before: t.Before, After: t.After, Curve: t.Curve, Failed: t.Failed, Calls: t.Calls, Tokens: t.Tokens,
		Warnings: t.warnings(), Started: t.started(), Paused: t.Paused, Pending: t.Pending, Quarantined: len(t.Quarantined),
		Search: t.Search, SearchEnd: t.SearchEnd, Budget: t.specAt(t.started() + 1).Budget,
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
	fmt.Fprintf(&b, "**%s**: %s (%s) since %s. ", t.Run, t.phase, t.subject, t.entered.UTC().Format(detailsTime))
	if t.optimizes {
		fmt.Fprintf(&b, "Version %d of the prompts is promoted.\n\n", t.Promoted)
		b.WriteString(t.searchDetails())
	} else {
		fmt.Fprintf(&b, "Step %d of %d, promoted %s.\n\n", t.Step, t.steps(), t.promotedText())
	}
	if stop := t.stop(); stop != nil && !t.optimizes {
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
