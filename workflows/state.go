package workflows

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// Phase is the current activity of a run.
type Phase string

// The phases.
const (
	PhasePreparing  Phase = "preparing"
	PhaseWarmStart  Phase = "warm start"
	PhaseRollouts   Phase = "rollouts"
	PhaseUpdate     Phase = "update"
	PhaseEvaluation Phase = "evaluation"
	PhasePaused     Phase = "paused"
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
	Run              string                      `json:"run"`
	Spec             spec.Spec                   `json:"spec"`
	Splits           map[trace.Kind]record.Split `json:"splits"`
	SearchAttributes bool                        `json:"search_attributes"`

	// Started is true once version 0 was made, evaluated and promoted.
	Started bool `json:"started"`
	// Step counts finished steps; version Step is the newest.
	Step int `json:"step"`
	// Cursor counts the tasks taken from the endless stream of the train split.
	Cursor   int    `json:"cursor"`
	Weights  string `json:"weights,omitempty"` // of version Step
	Promoted int    `json:"promoted"`
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
}

// Quarantine is a task that failed because of the task itself. Later steps leave it out.
type Quarantine struct {
	Index  int    `json:"index"` // in the train split
	Step   int    `json:"step"`  // that found it
	Reason string `json:"reason"`
}

// CurvePoint is one finished step.
type CurvePoint struct {
	Step   int      `json:"step"`
	Reward float64  `json:"reward"` // mean over the step's rollouts
	Gate   *float64 `json:"gate,omitempty"`
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
	Run      string                 `json:"run"`
	Steps    int                    `json:"steps"`
	Promoted int                    `json:"promoted"`
	Weights  string                 `json:"weights"` // digest of the last version's weights
	Before   *activities.Evaluation `json:"before,omitempty"`
	After    *activities.Evaluation `json:"after,omitempty"`
	// Stopped is the request that ended the run before its last step; nil if none did.
	Stopped *record.Stop `json:"stopped,omitempty"`
	// Evaluation is the result of a run that trains nothing.
	Evaluation *activities.Evaluation `json:"evaluation,omitempty"`
}

// steps returns how many steps the spec asks for.
func (s *TrainingState) steps() int {
	for _, setting := range slices.Backward(s.Settings) {
		if n, ok := setting.Values[spec.KeySteps]; ok {
			return int(n)
		}
	}
	return s.Spec.Training.Total(s.Splits[trace.Train].Count)
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
	if s.Stop == nil || s.last() == s.steps() {
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

func (s *TrainingState) has(split trace.Kind) bool { return s.Splits[split].Count > 0 }

// evaluates reports whether version v is evaluated on the gate split.
func (s *TrainingState) evaluates(v int) bool {
	return s.has(trace.Gate) && (v%s.specAt(v).Evaluation.Every == 0 || v == s.last())
}

// addDecision keeps the last decisions: the store has all.
func (s *TrainingState) addDecision(d model.Decision) {
	s.Decisions = append(s.Decisions, d)
	s.Decisions = s.Decisions[max(0, len(s.Decisions)-curveLength):]
}

func (s *TrainingState) addPoint(p CurvePoint) {
	s.Curve = append(s.Curve, p)
	s.Curve = s.Curve[max(0, len(s.Curve)-curveLength):]
}
